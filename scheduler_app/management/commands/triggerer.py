"""``manage.py triggerer``: watches the triggers of deferred tasks."""

from __future__ import annotations

import signal
from typing import Any

from django.core.management.base import BaseCommand

from scheduler_app.triggerer.service import Triggerer


class Command(BaseCommand):
    """Runs one triggerer until SIGTERM or SIGINT."""

    help = "Run a triggerer: keeps its job row; no flow can defer yet, so nothing waits."
    requires_system_checks = ("daylight",)  # not those of pages, which it never serves

    def handle(self, *args: Any, **options: Any) -> None:
        """Ends with its job row ended."""
        triggerer = Triggerer()
        signal.signal(signal.SIGTERM, triggerer.stop)
        signal.signal(signal.SIGINT, triggerer.stop)
        triggerer.run()
