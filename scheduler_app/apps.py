"""The Django application that holds the records, rules and processes of the scheduler."""

from __future__ import annotations

from django.apps import AppConfig


class SchedulerAppConfig(AppConfig):
    """Registers the records, the system checks and the Celery application."""

    name = "scheduler_app"
    label = "scheduler_app"
    verbose_name = "Scheduler"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """The Celery application is the current one, and the system checks are known."""
        from scheduler_app.config import celery, checks  # noqa: F401, PLC0415 - registers itself
        from scheduler_app.processes import times  # noqa: PLC0415 - needs the settings

        times.load_quickly()
