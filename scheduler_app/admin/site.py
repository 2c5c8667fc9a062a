"""The site: for superusers, and whatever is registered on it is read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.contrib.admin import AdminSite
from django.contrib.auth import REDIRECT_FIELD_NAME
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.urls import reverse

from scheduler_app.admin.apps import LEFT_OUT
from scheduler_app.admin.read_only import ReadOnlyAdmin

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.db.models import Model
    from django.http import HttpRequest, HttpResponse


class ReadOnlySite(AdminSite):
    """Shows; changes nothing."""

    site_header = "Daylight"
    site_title = "Daylight"
    index_title = "Every record, as it is stored"

    def has_permission(self, request: HttpRequest) -> bool:
        """Superusers alone."""
        return bool(request.user.is_active and request.user.is_superuser)

    def login(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """There is one door: the dashboard's; who is signed in and has no business here is told so."""
        del extra_context
        if request.user.is_authenticated and not self.has_permission(request):
            raise PermissionDenied
        return redirect_to_login(request.GET.get(REDIRECT_FIELD_NAME) or reverse("admin:index"))

    def get_urls(self) -> list[Any]:
        """Addresses of every model's pages; each is on the site, its application's own admin or not."""
        for model in apps.get_models():
            if model._meta.app_label not in LEFT_OUT and not self.is_registered(model):  # noqa: SLF001 - documented by Django as public
                self.register(model)
        return super().get_urls()

    def register(
        self,
        model_or_iterable: type[Model] | Iterable[type[Model]],
        admin_class: Any = None,
        **options: Any,
    ) -> None:
        """The models are shown read-only, whatever admin an application brings for them."""
        del admin_class, options
        super().register(model_or_iterable, ReadOnlyAdmin)
