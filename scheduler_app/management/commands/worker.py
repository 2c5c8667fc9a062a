"""``manage.py worker``: takes deliveries and runs tasks."""

from __future__ import annotations

import signal
import sys
from typing import Any

import psycopg
from celery.app import app_or_default
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from scheduler_app.worker.service import Worker


class Command(BaseCommand):
    """Runs one worker until SIGTERM or SIGINT; any number may run on any host."""

    help = "Run a worker: claims attempts, runs tasks in child processes, reports."
    requires_system_checks = ("daylight",)  # not those of pages, which it never serves

    def add_arguments(self, parser: CommandParser) -> None:
        """Which queues, and how many tasks at a time."""
        parser.add_argument("--queues", default="default", help="Queues to take from, with commas.")
        parser.add_argument("--concurrency", type=int, default=settings.WORKER_CONCURRENCY)
        parser.add_argument("--name", default="", help="A label for people; owns nothing.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Ends with no task running: those that did not end in time are handed back."""
        worker = Worker(
            app=app_or_default(),
            queues=[queue.strip() for queue in options["queues"].split(",") if queue.strip()],
            concurrency=options["concurrency"],
            name=options["name"],
        )
        signal.signal(signal.SIGTERM, worker.stop)
        signal.signal(signal.SIGINT, worker.stop)
        try:
            code = worker.run()
        except psycopg.OperationalError as error:
            message = f"The database cannot be reached: {str(error).strip()}"
            raise CommandError(message) from None
        sys.exit(code)
