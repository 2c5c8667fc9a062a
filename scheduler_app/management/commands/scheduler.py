"""``manage.py scheduler``: leases, run creation, dispatch, judging, sweeps, catalog."""

from __future__ import annotations

import signal
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from scheduler_app.config.celery import app
from scheduler_app.executors.celery import CeleryExecutor
from scheduler_app.scheduler.service import Scheduler
from scheduler_app.transitions.notices import Notices


class Command(BaseCommand):
    """Runs one scheduler until SIGTERM or SIGINT; any number may run on any host."""

    help = "Run a scheduler: holds leases, creates runs, dispatches tasks, judges events."

    def handle(self, *args: Any, **options: Any) -> None:
        """Ends with all leases released."""
        scheduler = Scheduler(executor=CeleryExecutor(app), notices=Notices(settings.CACHE_URL))
        signal.signal(signal.SIGTERM, scheduler.stop)
        signal.signal(signal.SIGINT, scheduler.stop)
        scheduler.run()
