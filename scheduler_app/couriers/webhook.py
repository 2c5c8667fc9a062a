"""One POST of JSON: to a checked address, in bounded time, without following a redirect."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from scheduler_app.couriers import destinations
from scheduler_app.couriers.errors import NotReached, NotSendable
from scheduler_app.couriers.limits import BODY_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler_app.couriers.limits import Limits

AGENT: Final = "Daylight"
TIMESTAMP: Final = "Daylight-Timestamp"
SIGNATURE: Final = "Daylight-Signature"
KEY: Final = "Daylight-Key"  # the same however often a letter is sent
_TRY_AGAIN: Final = frozenset({408, 425, 429, *range(500, 600)})


def signature(body: bytes, *, timestamp: int, key: str) -> str:
    """What the receiver compares: HMAC-SHA256 of ``<timestamp>.<body>``, as ``v1=<hex>``."""
    signed = str(timestamp).encode() + b"." + body
    return "v1=" + hmac.new(key.encode(), signed, hashlib.sha256).hexdigest()


def post(
    url: str,
    content: Mapping[str, Any],
    *,
    limits: Limits,
    headers: Mapping[str, str] | None = None,
    letter_key: str = "",
    key: str | None = None,
) -> str:
    """The content was taken; a sentence that says so, without the address.

    Signed with ``key``, at the time of this very try. Raises ``NotSendable`` and ``NotReached``.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise NotSendable("The address of a webhook begins with https:// and names a host.")
    body = json.dumps(content, ensure_ascii=False, default=str).encode("utf-8", "replace")
    if len(body) > BODY_BYTES_MAX:
        raise NotSendable(f"The letter has {len(body)} bytes; {BODY_BYTES_MAX} are the most.")
    sent = {
        **(headers or {}),
        "Content-Type": "application/json",
        "User-Agent": AGENT,
        "Connection": "close",
    }
    if letter_key:
        sent[KEY] = letter_key
    if key is not None:
        timestamp = int(time.time())
        sent[TIMESTAMP] = str(timestamp)
        sent[SIGNATURE] = signature(body, timestamp=timestamp, key=key)
    target = parts.path or "/"
    if parts.query:
        target += f"?{parts.query}"
    began = time.monotonic()
    status = _asked(parts.scheme, parts.hostname, parts.port, target, body, sent, limits)
    return _judged(status, parts.hostname, time.monotonic() - began)


def _judged(status: int, host: str, took_s: float) -> str:
    said = f"{host} answered {status} after {took_s:.2f} s"
    if 200 <= status < 300:
        return f"{said}."
    if 300 <= status < 400:
        raise NotSendable(
            f"{said}: a redirect, which is not followed. Name the address it leads to."
        )
    if status in _TRY_AGAIN:
        raise NotReached(f"{said}.")
    raise NotSendable(f"{said}: it does not want this.")


def _asked(
    scheme: str,
    host: str,
    port: int | None,
    target: str,
    body: bytes,
    headers: Mapping[str, str],
    limits: Limits,
) -> int:
    is_encrypted = scheme == "https"
    asked = _Pinned(host, port or (443 if is_encrypted else 80), is_encrypted, limits)
    # Each wait has a limit; this is the limit of them all, for who answers a byte a second.
    ending = threading.Timer(limits.timeout_s, asked.end)
    ending.daemon = True
    ending.start()
    try:
        asked.request("POST", target, body, dict(headers))
        answer = asked.getresponse()
        status: int = answer.status
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", "") or error.reason
        raise NotReached(f"{host} cannot be trusted: {reason}.") from error
    except (OSError, http.client.HTTPException) as error:
        what = "did not answer in time" if asked.is_over else f"broke off: {type(error).__name__}"
        raise NotReached(f"{host} {what}.") from error
    except ValueError as error:  # a header or target that cannot be sent
        raise NotSendable(f"The request cannot be made: {type(error).__name__}.") from error
    finally:
        ending.cancel()
        asked.close()
    if asked.is_over:  # what came until then looked like an answer
        raise NotReached(f"{host} did not answer in time.")
    return status


class _Pinned(http.client.HTTPConnection):
    """A connection to an address that was checked, under the name that was asked for."""

    def __init__(self, host: str, port: int, is_encrypted: bool, limits: Limits) -> None:
        super().__init__(host, port, timeout=limits.timeout_s)
        self.default_port = 443 if is_encrypted else 80  # decides whether the Host header names it
        self.is_over = False
        self._is_encrypted = is_encrypted
        self._limits = limits

    def connect(self) -> None:
        """The socket is there, and encrypted if it must be."""
        made = destinations.connect(
            self.host,
            self.port,
            timeout_s=self._limits.timeout_s,
            allowed=self._limits.allowed,
            is_encrypted=self._is_encrypted,
        )
        if self._is_encrypted:
            made = ssl.create_default_context().wrap_socket(made, server_hostname=self.host)
        self.sock = made

    def end(self) -> None:
        """Whatever waits for the other side waits no longer."""
        self.is_over = True
        if self.sock is not None:
            try:
                self.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # it was closed just now
