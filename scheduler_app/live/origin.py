"""Which pages may open a socket: those of this site. Browsers let any page try, and send cookies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from channels.security.websocket import WebsocketDenier
from django.conf import settings
from django.http.request import split_domain_port, validate_host

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class OwnPagesOnly:
    """Lets through what comes from a page of this host, or of a trusted origin; denies the rest."""

    def __init__(self, application: Callable[..., Awaitable[Any]]) -> None:
        self.application = application

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> Any:
        """The socket opens, or is denied with 403."""
        headers = scope.get("headers", [])
        origins = [value.decode("latin-1") for name, value in headers if name == b"origin"]
        hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
        if len(origins) == len(hosts) == 1 and is_own(
            origins[0], hosts[0], scope.get("scheme", "ws")
        ):
            return await self.application(scope, receive, send)
        denier: Any = WebsocketDenier()
        return await denier(scope, receive, send)


def is_own(origin: str, host: str, scheme: str) -> bool:
    """Whether a page of ``origin`` may open a socket at ``host``."""
    domain, _ = split_domain_port(host)
    if not domain or not validate_host(domain, settings.ALLOWED_HOSTS):
        return False
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    try:
        parts = urlsplit(origin)
        is_plain = not (parts.path or parts.query or parts.fragment or parts.username)
    except ValueError:
        return False
    # Behind a proxy that speaks HTTPS the socket arrives in the clear.
    expected = "https" if settings.HTTPS or scheme == "wss" else "http"
    return is_plain and parts.scheme == expected and parts.netloc.lower() == host.lower()
