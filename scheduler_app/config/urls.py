"""Every address of the web process: admin, API with health and metrics, pages."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("api/v2/", include("scheduler_app.airflow_api.urls")),
    path("", include("scheduler_app.api.urls")),
    path("", include("dashboard.urls")),
]
