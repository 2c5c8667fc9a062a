"""Every address of the web process."""

from __future__ import annotations

from importlib.util import find_spec

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path

urlpatterns: list[URLPattern | URLResolver] = [path("admin/", admin.site.urls)]
# Rooms that are being built are left out until they are there.
if find_spec("scheduler_app.api.urls"):
    urlpatterns.append(path("", include("scheduler_app.api.urls")))
if find_spec("dashboard.urls"):
    urlpatterns.append(path("", include("dashboard.urls")))
