"""Whole triggerers: what they fire, what they outlive, and who goes on when they end."""

from __future__ import annotations

import http.server
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scheduler_app.models import Incident, Job, Run, Trigger
from scheduler_app.rules import values
from scheduler_app.transitions.trigger import Fire, fire
from tests.integration.triggerer.conftest import SOON_S, TTL_S, Post, flow_that_waits
from tests.workshop import wait_until

if TYPE_CHECKING:
    from scheduler_app.transitions.attempt import Message


def _event(post: Post, message: Message, *, within_s: float = SOON_S) -> Any:
    """The event that the task resumes with, once its trigger has fired."""
    trigger = post.fired(message, within_s=within_s)
    assert trigger.state == "fired", trigger.payload
    ti = post.workshop.ti(message)
    assert (ti.state, ti.resume_index) == ("scheduled", 1)
    assert ti.next_kwargs is not None
    return values.decode(ti.next_kwargs["event"])


def _error(post: Post, message: Message, *, within_s: float = SOON_S) -> dict[str, Any]:
    """The error that the task resumes with."""
    trigger = post.fired(message, within_s=within_s)
    assert trigger.state == "failed", trigger.payload
    assert trigger.payload is not None
    error: dict[str, Any] = trigger.payload["error"]
    return error


def test_a_trigger_written_in_the_flow_file_fires_with_what_it_returns(post: Post) -> None:
    process = post.start()
    waiting = post.gates("a", "b")
    wait_until(lambda: post.watched_by(process) == 2)
    assert set(Trigger.objects.values_list("state", flat=True)) == {"waiting"}
    post.open("b")
    assert _event(post, waiting["b"]) == "b"
    assert post.workshop.ti(waiting["a"]).state == "deferred"
    job = Job.objects.get(pid=process.pid)
    wait_until(lambda: Job.objects.get(pk=job.pk).detail.get("watched") == 1)


def test_a_timer_fires_soon_after_it_is_due(post: Post) -> None:
    post.start()
    message = post.wait_for(flow_that_waits("", "TimeTrigger(after=timedelta(seconds=1))"))
    post.fired(message)
    trigger = Trigger.objects.get()
    assert trigger.ended_at is not None
    assert trigger.due_at is not None
    assert 0 <= (trigger.ended_at - trigger.due_at).total_seconds() < 0.5


def test_a_deferral_without_an_event_is_over_at_its_time_limit(post: Post) -> None:
    post.start()
    message = post.wait_for(
        flow_that_waits(
            "", f'Gate("never", {str(post.folder)!r})', timeout="timedelta(seconds=0.5)"
        )
    )
    assert post.fired(message).state == "timed_out"


def test_what_a_trigger_raises_or_cannot_hand_over_fails_the_wait_and_nothing_else(
    post: Post,
) -> None:
    process = post.start()
    body = """
    @dataclass(frozen=True)
    class Bad(Trigger):
        what: str

        async def run(self):
            if self.what == "exit":
                sys.exit(3)
            if self.what == "cancel":
                raise asyncio.CancelledError
            if self.what == "object":
                return object()
            raise OSError(self.what)
"""
    for what, kind in (
        ("gone", "OSError"),
        ("exit", "scheduler_app.triggerer.steps.Exited"),
        ("cancel", "asyncio.exceptions.CancelledError"),
        ("object", "scheduler_app.rules.errors.InvalidInput"),
    ):
        message = post.wait_for(flow_that_waits(body, f"Bad({what!r})"))
        assert _error(post, message)["type"] == kind
    assert process.poll() is None


def test_a_class_that_the_source_no_longer_gives_fails_the_wait(post: Post) -> None:
    message = post.gates("a")["a"]
    Trigger.objects.update(classpath="flow:Gone")
    post.start()
    assert "no trigger class" in _error(post, message)["message"]


def test_files_runs_databases_and_web_servers_are_waited_for(post: Post, tmp_path: Path) -> None:
    process = post.start()
    bank = str(tmp_path / "bank.db")
    with closing(sqlite3.connect(bank)) as made, made:
        made.execute("create table t (n integer)")
    quick = "poll_interval=timedelta(seconds=0.2)"
    other = post.gates("other")["other"]
    with _web_server() as (address, answer):
        waiting = {
            "file": post.wait_for(
                flow_that_waits("", f"FileTrigger({str(tmp_path / 'in.csv')!r}, {quick})")
            ),
            "sql": post.wait_for(
                flow_that_waits(
                    "", f'SqlTrigger("select max(n) from t", {bank!r}, driver="sqlite3", {quick})'
                )
            ),
            "http": post.wait_for(
                flow_that_waits("", f'HttpTrigger({address!r}, contains="ready", {quick})')
            ),
            "run": post.wait_for(
                flow_that_waits("", f'RunTrigger("f_other", run_id={_key(other)!r})')
            ),
            "task": post.wait_for(
                flow_that_waits("", f'RunTrigger("f_other", run_id={_key(other)!r}, task_id="t")')
            ),
        }
        wait_until(lambda: post.watched_by(process) == 6)
        assert all(post.workshop.ti(one).state == "deferred" for one in waiting.values())
        (tmp_path / "in.csv").touch()
        with closing(sqlite3.connect(bank)) as opened, opened:
            opened.execute("insert into t values (7)")
        answer[:] = [b"ready now"]
        assert _event(post, waiting["file"]) == str(tmp_path / "in.csv")
        assert _event(post, waiting["sql"]) == [7]
        assert _event(post, waiting["http"]) == {"status": 200, "body": "ready now"}
    with post.workshop.connection.transaction():
        post.workshop.connection.execute(
            "UPDATE task_instance SET state = 'failed', is_open = false,"
            " ended_at = clock_timestamp() WHERE id = %s",
            [other.ti_id],
        )
    event = _event(post, waiting["task"])
    assert (event["flow_id"], event["task_id"], event["state"]) == ("f_other", "t", "failed")
    post.workshop.connection.execute(
        "UPDATE run SET state = 'failed', is_active = false, ended_at = clock_timestamp()"
        " WHERE id = %s",
        [other.run_id],
    )
    assert _event(post, waiting["run"])["state"] == "failed"


def _key(message: Message) -> str:
    return Run.objects.get(pk=message.run_id).run_key


@contextmanager
def _web_server() -> Iterator[tuple[str, list[bytes]]]:
    answer = [b"not yet"]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer[0])

        def log_message(self, *_: object) -> None:
            """Nothing is logged."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/", answer
        server.shutdown()


def test_each_flow_version_imports_its_own_modules_whenever_it_does(post: Post) -> None:
    post.start()
    body = """
    @dataclass(frozen=True)
    class Late(Trigger):
        async def run(self):
            seen = []
            for _ in range(5):
                await asyncio.sleep(0.05)
                import flow
                seen.append(flow.VERSION)
            return seen

    VERSION = {version}
"""
    waiting = {
        version: post.wait_for(
            flow_that_waits(body.format(version=version), "Late()").replace(
                "def f():", f"def f_{version}():"
            )
        )
        for version in (1, 2, 3)
    }
    for version, message in waiting.items():
        assert _event(post, message) == [version] * 5


def test_code_of_triggers_sees_no_addresses_and_no_secrets(post: Post) -> None:
    post.start(DAYLIGHT_SECRET_KEY="secret", BANK_DSN="seen")
    body = """
    @dataclass(frozen=True)
    class Spy(Trigger):
        async def run(self):
            return {name: os.environ.get(name) for name in
                    ("DATABASE_URL", "CACHE_URL", "DAYLIGHT_SECRET_KEY", "BANK_DSN")}
"""
    assert _event(post, post.wait_for(flow_that_waits(body, "Spy()"))) == {
        "DATABASE_URL": None,
        "CACHE_URL": None,
        "DAYLIGHT_SECRET_KEY": None,
        "BANK_DSN": "seen",
    }


BLOCKS = """
    @dataclass(frozen=True)
    class Blocks(Trigger):
        folder: str
        how: str

        async def run(self):
            note(f"{self.folder}/log", "start", self.how, os.getpid())
            if self.how == "task":
                await asyncio.gather(asyncio.sleep(60), self.block())
            elif self.how == "deaf":
                until = time.monotonic() + 3
                while time.monotonic() < until:
                    try:
                        time.sleep(10)
                    except BaseException:
                        pass
            else:
                await self.block()
            return "through"

        async def block(self):
            time.sleep(2)
            raise OSError("through") if self.how == "task" else None
"""


def test_a_trigger_that_blocks_the_loop_is_named_and_goes_on_by_itself(post: Post) -> None:
    process = post.start(DAYLIGHT_TRIGGER_BLOCK_S="0.3")
    gates = post.gates("a")
    wait_until(lambda: len(post.noted()) == 1)
    body = BLOCKS.replace('raise OSError("through") if self.how == "task" else None', "")
    message = post.wait_for(flow_that_waits(body, f'Blocks({str(post.folder)!r}, "plain")'))
    wait_until(lambda: any(line[1] == "plain" for line in post.noted()))
    post.open("a")
    assert _event(post, gates["a"], within_s=1.5) == "a", "the others go on"
    assert _event(post, message, within_s=SOON_S) == "through"
    pids = [int(line[2]) for line in post.noted() if line[:2] == ["start", "plain"]]
    assert pids[0] == process.pid
    assert len(pids) == 2
    assert pids[1] != process.pid, "it was run again in a process of its own"
    incident = Incident.objects.get(kind="trigger_blocks")
    assert "Blocks, flow f, run" in incident.message
    assert Trigger.objects.get(ti_id=message.ti_id).block_count == 1
    assert process.poll() is None


def test_a_task_that_a_trigger_started_is_known_as_its(post: Post) -> None:
    post.start(DAYLIGHT_TRIGGER_BLOCK_S="0.3")
    message = post.wait_for(flow_that_waits(BLOCKS, f'Blocks({str(post.folder)!r}, "task")'))
    assert _error(post, message, within_s=SOON_S)["message"] == "through"
    assert Trigger.objects.get().block_count == 1


def test_a_trigger_that_no_exception_reaches_ends_its_triggerer_once_and_no_other(
    post: Post,
) -> None:
    process = post.start(DAYLIGHT_TRIGGER_BLOCK_S="0.3")
    message = post.wait_for(flow_that_waits(BLOCKS, f'Blocks({str(post.folder)!r}, "deaf")'))
    gates = post.gates("a")
    assert process.wait(timeout=SOON_S) == 70
    assert Incident.objects.filter(message__contains="could not be interrupted").count() == 1
    heir = post.start(DAYLIGHT_TRIGGER_BLOCK_S="0.3")
    post.open("a")
    assert _event(post, gates["a"], within_s=SOON_S) == "a"
    assert _event(post, message, within_s=SOON_S) == "through"
    assert heir.poll() is None
    assert Trigger.objects.get(ti_id=message.ti_id).block_count == 1


def test_a_trigger_that_ends_its_process_ends_one_triggerer_and_then_only_itself(
    post: Post,
) -> None:
    process = post.start()
    gates = post.gates("a")
    body = """
    @dataclass(frozen=True)
    class Dies(Trigger):
        async def run(self):
            os._exit(9)
"""
    message = post.wait_for(flow_that_waits(body, "Dies()"))
    assert process.wait(timeout=SOON_S) == 9
    heir = post.start()
    error = _error(post, message, within_s=SOON_S)
    assert "ended with 9" in error["message"]
    post.open("a")
    assert _event(post, gates["a"], within_s=SOON_S) == "a"
    assert heir.poll() is None
    # Beside it may stand that no scheduler beats, of which there is none here.
    assert (
        Incident.objects.filter(message__contains="died while it ran code of trigger").count() == 1
    )


def test_what_a_killed_triggerer_watched_is_watched_by_another_and_fires_once(post: Post) -> None:
    one = post.start()
    waiting = post.gates("a", "b", "c")
    wait_until(lambda: len(post.noted()) == 3)
    two = post.start()
    one.kill()
    one.wait()
    wait_until(lambda: post.watched_by(two) == 3, within_s=SOON_S)
    post.open("a", "b", "c")
    for name, message in waiting.items():
        assert _event(post, message) == name
    ends = [line for line in post.noted() if line[0] == "end"]
    assert sorted(line[1] for line in ends) == ["a", "b", "c"]
    # A trigger at whose step the first one happened to die ends in a process of its own.
    assert one.pid not in {int(line[2]) for line in ends}


def test_a_triggerer_that_stops_hands_over_at_once(post: Post) -> None:
    one = post.start()
    post.gates("a", "b")
    wait_until(lambda: len(post.noted()) == 2)
    two = post.start()
    one.send_signal(signal.SIGTERM)
    wait_until(lambda: post.watched_by(two) == 2, within_s=TTL_S)
    assert one.wait(timeout=SOON_S) == 0
    assert Job.objects.get(pid=one.pid).state == "ended"


def test_a_stalled_triggerer_loses_its_triggers_and_drops_them_when_it_wakes(post: Post) -> None:
    one = post.start()
    waiting = post.gates("a", "b")
    wait_until(lambda: len(post.noted()) == 2)
    two = post.start()
    one.send_signal(signal.SIGSTOP)
    wait_until(lambda: post.watched_by(two) == 2, within_s=SOON_S)
    wait_until(lambda: len(post.noted()) == 4)
    one.send_signal(signal.SIGCONT)
    wait_until(lambda: Job.objects.get(pid=one.pid).detail.get("watched") == 0, within_s=SOON_S)
    post.open("a", "b")
    for name, message in waiting.items():
        assert _event(post, message) == name
    assert {int(line[2]) for line in post.noted() if line[0] == "end"} == {two.pid}


def test_a_triggerer_takes_no_more_than_it_has_room_for(post: Post) -> None:
    one = post.start("--capacity", "2")
    waiting = post.gates("a", "b", "c")
    wait_until(lambda: post.watched_by(one) == 2)
    wait_until(lambda: len(post.noted()) == 2)
    first = {line[1] for line in post.noted()}
    (left,) = {"a", "b", "c"} - first
    post.open(*waiting)
    for name, message in waiting.items():
        assert _event(post, message) == name
    assert left in {line[1] for line in post.noted()}


def test_the_code_of_a_trigger_that_somebody_else_fired_is_ended(post: Post) -> None:
    process = post.start()
    message = post.gates("a")["a"]
    wait_until(lambda: len(post.noted()) == 1)
    trigger = Trigger.objects.get()
    fire(
        post.workshop.connection,
        fires=[Fire(trigger_id=trigger.pk, state="fired", payload={"event": "by hand"})],
    )
    assert _event(post, message) == "by hand"
    wait_until(lambda: Job.objects.get(pid=process.pid).detail.get("watched") == 0, within_s=SOON_S)
    post.open("a")
    assert [line[0] for line in post.noted()] == ["start"]


def test_an_idle_triggerer_costs_next_to_nothing(post: Post) -> None:
    process = post.start()
    wait_until(lambda: _cpu_s(process.pid) > 0)
    time.sleep(1.0)
    before = _cpu_s(process.pid)
    time.sleep(4.0)
    assert (_cpu_s(process.pid) - before) / 4.0 < 0.03, "of one core"


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
