from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from django.utils import timezone

from scheduler_app.launch import readiness
from tests.factories import make_job

pytestmark = pytest.mark.django_db
PIDS = {"web": 11, "scheduler": 12, "triggerer": 13, "worker": 14}
SCAN = "the first scan of the flow folders"


class Page(BaseHTTPRequestHandler):
    """Answers with the status that the test wants."""

    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/healthz" else 404)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A web process that is well."""
    monkeypatch.setattr(Page, "status", 200)
    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield int(server.server_port)
        server.shutdown()
        thread.join()


def at_work(kind: str, **overrides: Any) -> None:
    now = timezone.now()
    values: dict[str, Any] = {
        "kind": kind,
        "pid": PIDS[kind],
        "hostname": socket.gethostname(),
        "started_at": now - timedelta(seconds=2),
        "progress_at": now,
        "detail": {"catalog": {}} if kind == "scheduler" else {},
    }
    make_job(**{**values, **overrides})


def test_a_stack_is_ready_when_all_get_on_the_folders_were_read_and_the_pages_answer(
    port: int,
) -> None:
    for kind in PIDS:
        at_work(kind)
    assert readiness.missing(PIDS, port=port) == []


def test_who_has_not_got_on_yet_is_named(port: int) -> None:
    now = timezone.now()
    at_work("web")
    at_work("scheduler", detail={})
    at_work("triggerer", started_at=now, progress_at=now)
    assert readiness.missing(PIDS, port=port) == ["triggerer", "worker", SCAN]


@pytest.mark.parametrize(
    "overrides",
    [{"pid": 99}, {"hostname": "another-host"}, {"ended_at": timezone.now()}, {"state": "dead"}],
)
def test_rows_of_other_processes_do_not_count(port: int, overrides: dict[str, Any]) -> None:
    for kind in PIDS:
        at_work(kind, **(overrides if kind == "worker" else {}))
    assert readiness.missing(PIDS, port=port) == ["worker"]


def test_one_of_several_schedulers_has_to_read_the_folders(port: int) -> None:
    pids = {"scheduler-1": 21, "scheduler-2": 22}
    at_work("scheduler", pid=21, detail={})
    assert readiness.missing(pids, port=port) == ["scheduler-2", SCAN]
    at_work("scheduler", pid=22)
    assert readiness.missing(pids, port=port) == []


def test_pages_that_answer_wrongly_or_not_at_all_are_missing(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in PIDS:
        at_work(kind)
    monkeypatch.setattr(Page, "status", 503)
    assert readiness.missing(PIDS, port=port) == [f"an answer of http://127.0.0.1:{port}/healthz"]
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = int(closed.getsockname()[1])
        assert len(readiness.missing(PIDS, port=nobody)) == 1
