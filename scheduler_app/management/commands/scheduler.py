"""``manage.py scheduler``: leases, run creation, dispatch, judging, sweeps, catalog."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from scheduler_app.catalog.service import Catalog
from scheduler_app.executors.choice import chosen_executor
from scheduler_app.executors.local_wire import NoFolder
from scheduler_app.executors.patient import PatientExecutor
from scheduler_app.management.keeper import Keeper
from scheduler_app.scheduler.service import Scheduler

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable


class Command(BaseCommand):
    """Runs one scheduler until SIGTERM or SIGINT; any number may run on any host."""

    help = "Run a scheduler: holds leases, creates runs, dispatches tasks, judges events."
    requires_system_checks = ("daylight",)  # not those of pages, which it never serves

    def add_arguments(self, parser: CommandParser) -> None:
        """What people call it."""
        parser.add_argument("--name", default="", help="A label for people; owns nothing.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Ends with all leases released."""

        def watch_flows(on_scan: Callable[[dict[str, Any]], None], stop: threading.Event) -> None:
            Catalog(settings.FLOW_FOLDERS, on_scan=on_scan).run_forever(stop)

        try:
            executor = PatientExecutor(chosen_executor(), patience_s=settings.CARRIER_PATIENCE_S)
        except NoFolder as error:
            raise CommandError(str(error)) from None
        scheduler = Scheduler(executor=executor, watch_flows=watch_flows, name=options["name"])
        signal.signal(signal.SIGTERM, scheduler.stop)
        signal.signal(signal.SIGINT, scheduler.stop)
        keeper = Keeper()
        keeper.start()
        try:
            code = scheduler.run()
        finally:
            keeper.stop()
        if code:
            sys.exit(code)
