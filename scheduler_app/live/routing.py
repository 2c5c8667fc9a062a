"""The addresses of sockets, and what stands before them: own pages only, then the session."""

from __future__ import annotations

from typing import Any

from channels.auth import AuthMiddlewareStack
from channels.routing import URLRouter
from django.urls import path, re_path

from scheduler_app.live.consumers import LiveConsumer, NoFeed
from scheduler_app.live.origin import OwnPagesOnly

application: Any = OwnPagesOnly(
    AuthMiddlewareStack(
        URLRouter(
            [
                path("ws/live", LiveConsumer.as_asgi()),
                re_path("", NoFeed.as_asgi()),
            ]
        )
    )
)
