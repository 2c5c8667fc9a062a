"""``manage.py web``: dashboard, REST, websockets and admin in one ASGI process."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from scheduler_app.launch.web import serve


class Command(BaseCommand):
    """Runs one web process until SIGTERM or SIGINT; any number may run on any host."""

    help = "Run the web process: dashboard, REST API, websockets, admin."

    def add_arguments(self, parser: CommandParser) -> None:
        """Where to listen."""
        parser.add_argument("--host", default="127.0.0.1", help="Address to listen on.")
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument("--name", default="", help="A label for people; owns nothing.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Ends with its job row ended."""
        serve(host=options["host"], port=options["port"], name=options["name"])
