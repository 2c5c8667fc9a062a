"""The ASGI application: pages and API over HTTP, and the live feed over websockets."""

from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "scheduler_app.config.settings")
os.environ.setdefault("DAYLIGHT_PROCESS", "web")

from channels.routing import ProtocolTypeRouter
from django.core.asgi import get_asgi_application

http = get_asgi_application()  # the applications are loaded from here on

from scheduler_app.live import routing  # noqa: E402 - needs them

application = ProtocolTypeRouter({"http": http, "websocket": routing.application})
