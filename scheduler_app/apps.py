"""The Django application that holds the records, rules and processes of the scheduler."""

from __future__ import annotations

from django.apps import AppConfig


class SchedulerAppConfig(AppConfig):
    """Registers the records; system checks come from ``scheduler_app.config``."""

    name = "scheduler_app"
    label = "scheduler_app"
    verbose_name = "Scheduler"
    default_auto_field = "django.db.models.BigAutoField"
