"""``manage.py worker``: takes deliveries and runs tasks."""

from __future__ import annotations

import gc
import signal
import sys
from typing import TYPE_CHECKING, Any

from celery.app import app_or_default
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from scheduler_app.executors.local_wire import NoFolder, socket_folder
from scheduler_app.worker.consume_celery import CeleryConsumer
from scheduler_app.worker.consume_local import LocalConsumer
from scheduler_app.worker.service import Worker

if TYPE_CHECKING:
    from scheduler_app.worker.consumer import Consumer


class Command(BaseCommand):
    """Runs one worker until SIGTERM or SIGINT; any number may run on any host.

    With ``DAYLIGHT_EXECUTOR=local`` on the scheduler's host alone, and with its data folder.
    """

    help = "Run a worker: claims attempts, runs tasks in child processes, reports."
    requires_system_checks = ("daylight",)  # not those of pages, which it never serves

    def add_arguments(self, parser: CommandParser) -> None:
        """Which queues, and how many tasks at a time."""
        parser.add_argument("--queues", default="default", help="Queues to take from, with commas.")
        parser.add_argument(
            "--concurrency",
            type=int,
            default=settings.WORKER_CONCURRENCY,
            metavar="N",
            help="Tasks at a time; 0: one process per task, without limit (local executor alone).",
        )
        parser.add_argument("--name", default="", help="A label for people; owns nothing.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Ends with no task running: those that did not end in time are handed back."""
        queues = [queue.strip() for queue in options["queues"].split(",") if queue.strip()]
        if not queues:
            raise CommandError("--queues names no queue.")
        worker = Worker(
            consumer=_consumer(),
            queues=queues,
            concurrency=_concurrency(options["concurrency"]),
            name=options["name"],
        )
        signal.signal(signal.SIGTERM, worker.stop)
        signal.signal(signal.SIGINT, worker.stop)
        # What is loaded by now stays: no collection writes into it, and children go on sharing it.
        gc.collect()
        gc.freeze()
        sys.exit(worker.run())


def _consumer() -> Consumer:
    if settings.EXECUTOR != "local":
        return CeleryConsumer(app_or_default())
    try:
        return LocalConsumer(socket_folder(settings.DATA_DIR))
    except NoFolder as error:
        raise CommandError(str(error)) from None


def _concurrency(asked: int) -> int:
    least = 0 if settings.EXECUTOR == "local" else 1
    if not least <= asked <= settings.CONCURRENCY_MAX:
        raise CommandError(
            f"--concurrency {asked} must be between {least} and {settings.CONCURRENCY_MAX} with the "
            f"{settings.EXECUTOR} executor (DAYLIGHT_EXECUTOR)."
        )
    return asked
