"""The dashboard as a Django application."""

from __future__ import annotations

from django.apps import AppConfig


class DashboardConfig(AppConfig):
    """Pages over queries and operations; no models."""

    name = "dashboard"
