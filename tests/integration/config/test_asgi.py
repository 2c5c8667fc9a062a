"""How a request reaches its view under ASGI."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from asgiref.testing import ApplicationCommunicator

from scheduler_app.config import asgi

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponseBase

SEEN: list[int] = []


def noting(get_response: Any) -> Any:
    """A middleware that notes its thread."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        SEEN.append(threading.get_ident())
        answer: HttpResponseBase = get_response(request)
        SEEN.append(threading.get_ident())
        return answer

    return middleware


@pytest.mark.django_db(transaction=True)
async def test_middlewares_and_view_are_one_step_of_one_thread(settings: Any) -> None:
    own = f"{__name__}.noting"
    settings.MIDDLEWARE = [own, *(part for one in settings.MIDDLEWARE for part in (one, own))]
    SEEN.clear()
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/login/",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1")],
    }
    asked = ApplicationCommunicator(asgi.OneThreadHandler(), scope)
    await asked.send_input({"type": "http.request", "body": b""})
    begun = await asked.receive_output(timeout=30)
    assert begun["status"] == 200
    body = await asked.receive_output(timeout=30)
    assert b"<h1" in body["body"]
    assert len(SEEN) == 2 * settings.MIDDLEWARE.count(own)
    assert len(set(SEEN)) == 1
    assert SEEN[0] != threading.get_ident()
    await asked.wait(timeout=30)
