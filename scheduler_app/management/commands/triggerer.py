"""``manage.py triggerer``: watches what deferred tasks wait for."""

from __future__ import annotations

import os
import signal
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from scheduler_app.processes.task_environment import task_environment
from scheduler_app.triggerer.isolate import run_isolated
from scheduler_app.triggerer.service import Triggerer


class Command(BaseCommand):
    """Runs one triggerer until SIGTERM or SIGINT; any number may run on any host."""

    help = "Run a triggerer: fires what deferred tasks wait for."
    requires_system_checks = ("daylight",)  # not those of pages, which it never serves

    def add_arguments(self, parser: CommandParser) -> None:
        """How many triggers; and what a triggerer says to the processes that it starts."""
        parser.add_argument("--capacity", type=int, default=settings.TRIGGERER_CAPACITY)
        parser.add_argument("--name", default="", help="A label for people; owns nothing.")
        parser.add_argument("--isolated", type=int, help="Only this trigger (used by triggerers).")
        parser.add_argument("--job", type=UUID, help="The triggerer that watches it.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Ends with its triggers given up and its job row ended."""
        environ = dict(os.environ)
        # Code of flow authors runs here: it sees what it sees in a worker.
        kept = task_environment(environ)
        for name in environ.keys() - kept.keys():
            del os.environ[name]
        if options["isolated"] is not None:
            run_isolated(options["isolated"], options["job"])
            return
        triggerer = Triggerer(capacity=options["capacity"], environ=environ, name=options["name"])
        signal.signal(signal.SIGTERM, triggerer.stop)
        signal.signal(signal.SIGINT, triggerer.stop)
        triggerer.run()
