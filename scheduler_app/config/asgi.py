"""The ASGI application: pages and API over HTTP, and the live feed over websockets."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "scheduler_app.config.settings")
os.environ.setdefault("DAYLIGHT_PROCESS", "web")

import django
from asgiref.sync import sync_to_async
from channels.routing import ProtocolTypeRouter
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.base import BaseHandler

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponseBase


class OneThreadHandler(ASGIHandler):
    """Each request goes through middlewares and view in one step of one thread.

    Django's own handler goes to a thread and back for each middleware and the view, since any of them
    may be asynchronous; none here is, and the way took longer than most answers.
    """

    def __init__(self) -> None:
        BaseHandler.__init__(self)
        self.load_middleware(is_async=False)

    async def get_response_async(self, request: HttpRequest) -> HttpResponseBase:
        """The answer, made in the thread of this request."""
        return await sync_to_async(self.get_response, thread_sensitive=True)(request)


django.setup(set_prefix=False)
http = OneThreadHandler()  # the applications are loaded from here on

from scheduler_app.live import routing  # noqa: E402 - needs them

application = ProtocolTypeRouter({"http": http, "websocket": routing.application})
