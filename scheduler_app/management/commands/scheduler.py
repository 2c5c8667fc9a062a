"""``manage.py scheduler``: leases, run creation, dispatch, judging, sweeps, catalog."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Any

from celery.app import app_or_default
from django.conf import settings
from django.core.management.base import BaseCommand

from scheduler_app.catalog.service import Catalog
from scheduler_app.executors.celery import CeleryExecutor
from scheduler_app.scheduler.service import Scheduler

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable


class Command(BaseCommand):
    """Runs one scheduler until SIGTERM or SIGINT; any number may run on any host."""

    help = "Run a scheduler: holds leases, creates runs, dispatches tasks, judges events."
    requires_system_checks = ("daylight",)  # not those of pages, which it never serves

    def handle(self, *args: Any, **options: Any) -> None:
        """Ends with all leases released."""

        def watch_flows(on_scan: Callable[[dict[str, Any]], None], stop: threading.Event) -> None:
            Catalog(settings.FLOW_FOLDERS, on_scan=on_scan).run_forever(stop)

        scheduler = Scheduler(executor=CeleryExecutor(app_or_default()), watch_flows=watch_flows)
        signal.signal(signal.SIGTERM, scheduler.stop)
        signal.signal(signal.SIGINT, scheduler.stop)
        if code := scheduler.run():
            sys.exit(code)
