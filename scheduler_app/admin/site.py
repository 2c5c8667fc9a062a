"""The site: for superusers, and whatever is registered on it is read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.admin import AdminSite

from scheduler_app.admin.read_only import ReadOnlyAdmin

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.db.models import Model
    from django.http import HttpRequest


class ReadOnlySite(AdminSite):
    """Shows; changes nothing."""

    site_header = "Daylight"
    site_title = "Daylight"
    index_title = "Every record, as it is stored"

    def has_permission(self, request: HttpRequest) -> bool:
        """Superusers alone."""
        return bool(request.user.is_active and request.user.is_superuser)

    def register(
        self,
        model_or_iterable: type[Model] | Iterable[type[Model]],
        admin_class: Any = None,
        **options: Any,
    ) -> None:
        """The models are shown read-only, whatever admin an application brings for them."""
        del admin_class, options
        super().register(model_or_iterable, ReadOnlyAdmin)
