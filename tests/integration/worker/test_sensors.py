"""Sensors in real children: what they look at themselves, and what they leave to a trigger."""

from __future__ import annotations

import http.server
import sqlite3
import threading
from typing import TYPE_CHECKING, Any

import pytest
from django.utils import timezone

from scheduler_app.authoring.triggers import make_trigger
from scheduler_app.models import Run, TaskInstance, Trigger
from scheduler_app.processes.ended_runs import ended_runs
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.queries.why import why_of
from scheduler_app.rules import values

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.workshop import Workshop


@pytest.fixture
def server() -> Iterator[str]:
    """A web server that is not ready at its first answer."""
    asked = []

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200 if len(asked) > 1 else 503)
            self.end_headers()
            self.wfile.write(b"ready")

        def log_message(self, *_: Any) -> None:
            """Quietly."""

    served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=served.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{served.server_port}/"
    served.shutdown()
    thread.join()
    served.server_close()


def _flow(call: str) -> str:
    return (
        "from datetime import timedelta\nfrom scheduler_app.authoring import *\n\n\n"
        "@task.sensor(task_id='t')\ndef asked(ctx, path):\n"
        "    import pathlib\n    return pathlib.Path(path).exists()\n\n\n"
        f"@flow\ndef f():\n    {call}\n"
    )


def test_each_kind_is_looked_at_by_a_worker_or_left_to_a_triggerer(
    workshop: Workshop, tmp_path: Path, server: str
) -> None:
    """Not there at first, then there: up for reschedule, or deferred to a trigger that finds it."""
    rows, wanted = tmp_path / "rows.db", tmp_path / "wanted"
    with sqlite3.connect(rows) as made:
        made.execute("CREATE TABLE t (done int)")
    run = Run.objects.get(pk=workshop.run(workshop.flow(_flow("asked('x')"))))
    kinds = {
        "file": f"WaitForFile(path={str(wanted)!r}, task_id='t', mode=MODE)",
        "http": f"WaitForHttp(url={server!r}, contains='ready', task_id='t', mode=MODE)",
        "sql": f"WaitForSql(sql='SELECT done FROM t', connection={str(rows)!r}, driver='sqlite3',"
        " task_id='t', mode=MODE)",
        "run": f"WaitForRun(flow_id='f', run_id={run.run_key!r}, task_id='t', mode=MODE)",
        "task": f"WaitForRun(flow_id='f', run_id={run.run_key!r}, wait_task_id='t', task_id='t',"
        " mode=MODE)",
        "python": f"asked.override(mode=MODE)({str(wanted)!r})",
        "time": "WaitForTime(after=timedelta(milliseconds=1500), task_id='t', mode=MODE)",
    }
    waiting = {}
    for mode in ("reschedule", "defer"):
        for kind, call in kinds.items():
            message = workshop.issue_one(_flow(call.replace("MODE", repr(mode))))
            outcome = workshop.deliver(message).outcome
            parked = {"reschedule": "rescheduled", "defer": "deferred"}[mode]
            assert outcome == parked, (kind, mode, workshop.attempt(message).error)
            waiting[kind, mode] = message
    wanted.touch()
    with sqlite3.connect(rows) as made:
        made.execute("INSERT INTO t VALUES (7)")
    TaskInstance.objects.filter(run=run).update(state="success", is_open=False)
    Run.objects.filter(pk=run.pk).update(state="success", is_active=False, ended_at=timezone.now())
    for (kind, mode), message in waiting.items():
        if mode == "defer":
            row = Trigger.objects.get(ti_id=message.ti_id)
            trigger: Any = make_trigger(row.classpath, values.decode(row.kwargs))
            if kind in ("run", "task"):
                assert ended_runs(workshop.connection, [trigger])[0]["state"] == "success"
            elif kind in ("time", "python"):  # the database fires it
                assert row.due_at is not None
            else:
                assert trigger.looked() is not None, kind
            continue
        again = workshop.issue(message.run_id)
        outcome = workshop.deliver(again).outcome
        if kind == "time" and outcome == "rescheduled":
            continue  # a quick machine
        assert outcome == "success", (kind, workshop.attempt(again).error)
        assert workshop.ti(again).try_number == 1


def test_a_task_ends_as_skipped_where_it_says_so(workshop: Workshop) -> None:
    source = (
        "from scheduler_app.authoring import *\n\n\n@task(retries=2)\ndef t(ctx):\n"
        "    raise Skip('nothing new')\n\n\n@flow\ndef f():\n    t()\n"
    )
    message = workshop.issue_one(source)
    assert workshop.deliver(message).outcome == "success"
    ti, attempt = workshop.ti(message), workshop.attempt(message)
    assert (ti.state, ti.is_open, ti.next_retry_at) == ("skipped", False, None)
    assert (attempt.outcome_reason, attempt.result) == ("Skipped: nothing new", None)
    told = why_of(EVERYTHING, ti.pk)
    assert (told.rule, told.sentence.endswith(": nothing new.")) == ("skipped_itself", True)


def test_a_poke_stays_on_its_worker_and_ends_when_it_is_there(
    workshop: Workshop, tmp_path: Path
) -> None:
    wanted = tmp_path / "wanted"
    call = f"WaitForFile(path={str(wanted)!r}, mode='poke', poll_interval=0.1, task_id='t')"
    running = workshop.start(workshop.issue_one(_flow(call)))
    wanted.touch()
    assert running.outcome(within_s=60).outcome == "success"
