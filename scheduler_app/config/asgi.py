"""The ASGI application: pages and API over HTTP, and the live feed over websockets."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final, cast

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "scheduler_app.config.settings")
os.environ.setdefault("DAYLIGHT_PROCESS", "web")

import django
from asgiref.sync import ThreadSensitiveContext, sync_to_async
from channels.routing import ProtocolTypeRouter
from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.core.handlers.base import BaseHandler
from django.http import FileResponse
from django.urls import set_script_prefix

if TYPE_CHECKING:
    from django.http import HttpResponseBase

# Threads that wait for the next request. Those of a burst above it end, since few find a connection anyhow.
THREADS_KEPT: Final = 16


class OneThreadHandler(ASGIHandler):
    """Each request goes through middlewares and view in one step of one thread, which is kept.

    Django's own handler goes to a thread and back for each middleware and the view, since any of them
    may be asynchronous, for each signal and for the end; it makes that thread anew, and watches all the
    while whether the client is gone. None here is asynchronous, a view cannot be broken off, and what it
    took was longer than most answers.
    """

    def __init__(self) -> None:
        BaseHandler.__init__(self)
        self.load_middleware(is_async=False)
        self._threads: list[ThreadPoolExecutor] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """The request is answered, unless its client went before its body was here."""
        assert scope["type"] == "http"
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
        thread = self._threads.pop() if self._threads else ThreadPoolExecutor(max_workers=1)
        is_idle = False
        try:
            answer = await asyncio.get_running_loop().run_in_executor(
                thread, Context().run, self._answered, scope, body
            )
            if answer.streaming:
                async with ThreadSensitiveContext(executor=thread):
                    await self._stream(answer, receive, send)
            is_idle = True
        finally:
            if is_idle and len(self._threads) < THREADS_KEPT:
                self._threads.append(thread)
            else:
                thread.shutdown(wait=False)
        if not answer.streaming:
            await self.send_response(answer, send)

    def _answered(self, scope: Any, body: Any) -> HttpResponseBase:
        """The answer, in the thread of its request. It is closed unless what it says is still to be made."""
        set_script_prefix(get_script_prefix(scope))
        signals.request_started.send(sender=self.__class__, scope=scope)
        request, refusal = self.create_request(scope, body)
        if request is None:
            body.close()
        answer: Any = refusal if request is None else self.get_response(request)
        answer._handler_class = self.__class__  # noqa: SLF001 - the sender of the request's end
        if isinstance(answer, FileResponse):
            answer.block_size = self.chunk_size
        if not answer.streaming:
            answer.close()
        return cast("HttpResponseBase", answer)

    async def _stream(self, answer: HttpResponseBase, receive: Any, send: Any) -> None:
        """All parts were sent as they were made, or the client went; the answer is closed."""
        told = asyncio.create_task(self.send_response(answer, send))
        gone = asyncio.create_task(self.listen_for_disconnect(receive))
        try:
            await asyncio.wait((told, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (gone, told):
                task.cancel()
            _, failure = await asyncio.gather(gone, told, return_exceptions=True)
            await sync_to_async(answer.close)()
        if isinstance(failure, Exception):
            raise failure


django.setup(set_prefix=False)
http = OneThreadHandler()  # the applications are loaded from here on

from scheduler_app.live import routing  # noqa: E402 - needs them

application = ProtocolTypeRouter({"http": http, "websocket": routing.application})
