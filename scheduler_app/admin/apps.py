"""Puts the read-only site in the place of Django's own, and every model on it."""

from __future__ import annotations

from django.apps import apps
from django.contrib.admin import site
from django.contrib.admin.apps import AdminConfig

# Rows of these would open somebody's session, or say nothing.
LEFT_OUT = frozenset({"sessions", "contenttypes"})


class ReadOnlyAdminConfig(AdminConfig):
    """Django's admin, with the site of this product."""

    default_site = "scheduler_app.admin.site.ReadOnlySite"

    def ready(self) -> None:
        """Every model is on the site, its application's own admin or not."""
        super().ready()
        for model in apps.get_models():
            if model._meta.app_label not in LEFT_OUT and not site.is_registered(model):  # noqa: SLF001 - documented by Django as public
                site.register(model)
