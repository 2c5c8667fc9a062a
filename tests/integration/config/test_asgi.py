"""How a request reaches its view under ASGI."""

from __future__ import annotations

import asyncio
import threading
import types
from typing import TYPE_CHECKING, Any, cast

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.core.signals import request_finished
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import get_script_prefix, path, set_script_prefix

from scheduler_app.config import asgi

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

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
    status, body = await ask(asgi.OneThreadHandler(), "/login/")
    assert status == 200
    assert b"<h1" in body
    assert len(SEEN) == 2 * settings.MIDDLEWARE.count(own)
    assert len(set(SEEN)) == 1
    assert SEEN[0] != threading.get_ident()


def communicator(handler: Any, address: str) -> ApplicationCommunicator:
    scope = {
        "type": "http",
        "method": "GET",
        "path": address,
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1")],
    }
    return ApplicationCommunicator(handler, scope)


async def ask(handler: Any, address: str) -> tuple[int, bytes]:
    asked = communicator(handler, address)
    await asked.send_input({"type": "http.request", "body": b""})
    begun = await asked.receive_output(timeout=30)
    body = b""
    while True:
        part = await asked.receive_output(timeout=30)
        body += part.get("body", b"")
        if not part.get("more_body"):
            break
    await asked.wait(timeout=30)
    return begun["status"], body


class Views:
    """Views that note their thread, and whether what they use was closed."""

    def __init__(self) -> None:
        self.threads: list[int] = []
        self.is_closed = threading.Event()
        self.ended: list[object] = []
        self.together = threading.Barrier(2)

    def plain(self, request: HttpRequest) -> HttpResponse:
        self.threads.append(threading.get_ident())
        return HttpResponse(f"{get_script_prefix()} {request.path}")

    def prefixed(self, request: HttpRequest) -> HttpResponse:
        del request
        set_script_prefix("/of-another/")
        return HttpResponse("")

    def meeting(self, request: HttpRequest) -> HttpResponse:
        self.together.wait(timeout=30)
        return self.plain(request)

    def parts(self, request: HttpRequest) -> StreamingHttpResponse:
        self.threads.append(threading.get_ident())
        answer: Any = StreamingHttpResponse(self._parts(endless=request.path == "/endless/"))
        answer._resource_closers.append(self.is_closed.set)
        return cast("StreamingHttpResponse", answer)

    async def _parts(self, *, endless: bool) -> AsyncIterator[bytes]:
        try:
            yield b"one"
            self.threads.append(await sync_to_async(threading.get_ident)())
            yield b"two"
            while endless:
                await asyncio.sleep(0.01)
        finally:
            self.threads.append(await sync_to_async(threading.get_ident)())


@pytest.fixture
def views(settings: Any) -> Iterator[Views]:
    made = Views()
    urls = types.ModuleType("urls_of_this_test")
    urls.urlpatterns = [  # type: ignore[attr-defined] # made here
        path("plain/", made.plain),
        path("prefixed/", made.prefixed),
        path("meeting/", made.meeting),
        path("parts/", made.parts),
        path("endless/", made.parts),
    ]
    settings.ROOT_URLCONF = urls
    settings.MIDDLEWARE = []
    request_finished.connect(note := lambda **_: made.ended.append(1))
    yield made
    request_finished.disconnect(note)


async def test_a_thread_serves_one_request_after_the_other(views: Views) -> None:
    handler = asgi.OneThreadHandler()
    assert [await ask(handler, "/plain/") for _ in range(3)] == [(200, b"/ /plain/")] * 3
    assert len(set(views.threads)) == 1
    assert views.threads[0] != threading.get_ident()
    assert len(views.ended) == 3, "each request ends, and so lets go of its connection"


async def test_nothing_of_a_request_is_left_for_the_next_one_of_its_thread(views: Views) -> None:
    handler = asgi.OneThreadHandler()
    await ask(handler, "/prefixed/")
    assert await ask(handler, "/plain/") == (200, b"/ /plain/")


async def test_requests_at_the_same_time_have_threads_of_their_own(
    views: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asgi, "THREADS_KEPT", 1)
    handler = asgi.OneThreadHandler()
    await asyncio.gather(ask(handler, "/meeting/"), ask(handler, "/meeting/"))
    assert len(set(views.threads)) == 2
    await ask(handler, "/plain/")
    await ask(handler, "/plain/")
    assert views.threads[2] == views.threads[3]
    (kept,) = handler._threads
    assert kept.submit(threading.get_ident).result() == views.threads[3], "the other one has ended"


async def test_what_is_streamed_is_made_in_the_thread_of_its_view(views: Views) -> None:
    handler = asgi.OneThreadHandler()
    assert await ask(handler, "/parts/") == (200, b"onetwo")
    assert len(views.threads) == 3
    assert len(set(views.threads)) == 1
    assert views.is_closed.is_set()
    assert len(views.ended) == 1
    await ask(handler, "/plain/")
    assert len(set(views.threads)) == 1, "the thread is free again"


async def test_what_is_streamed_ends_when_the_client_goes(views: Views) -> None:
    handler = asgi.OneThreadHandler()
    asked = communicator(handler, "/endless/")
    await asked.send_input({"type": "http.request", "body": b""})
    told = [await asked.receive_output(timeout=30) for _ in range(3)]
    assert [part.get("body") for part in told[1:]] == [b"one", b"two"]
    assert not views.is_closed.is_set()
    await asked.send_input({"type": "http.disconnect"})
    await asked.wait(timeout=30)
    assert views.is_closed.is_set()
    assert len(views.threads) == 3
    assert len(set(views.threads)) == 1


async def test_a_body_whose_client_goes_reaches_no_view(views: Views) -> None:
    asked = communicator(asgi.OneThreadHandler(), "/plain/")
    await asked.send_input({"type": "http.request", "body": b"a", "more_body": True})
    await asked.send_input({"type": "http.disconnect"})
    await asked.wait(timeout=30)
    assert views.threads == []


async def test_a_path_that_is_no_text_is_refused(views: Views) -> None:
    handler = asgi.OneThreadHandler()
    asked = communicator(handler, "/plain/")
    asked.scope["query_string"] = b"\xff"
    await asked.send_input({"type": "http.request", "body": b""})
    assert (await asked.receive_output(timeout=30))["status"] == 400
    await asked.wait(timeout=30)
    assert await ask(handler, "/plain/") == (200, b"/ /plain/")
    assert views.threads
