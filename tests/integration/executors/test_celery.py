"""What only Celery has: a broker that may go away."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import redis

from scheduler_app.config.celery import app
from scheduler_app.executors.celery import CeleryExecutor
from scheduler_app.executors.choice import chosen_executor
from scheduler_app.launch import embedded
from scheduler_app.models import Job
from scheduler_app.queries import health
from scheduler_app.queries.scope import EVERYTHING
from tests.integration.executors.conftest import SOON_S, TTL_S, Hall, flow_of
from tests.proxy import Proxy
from tests.workshop import wait_until

if TYPE_CHECKING:
    from tests.nurseries import Nurseries
    from tests.workshop import Workshop


def test_a_carrier_of_a_test_s_own_is_nobody_else_s(
    workshop: Workshop, place: Path, halls: list[Hall], nurseries: Nurseries
) -> None:
    """Else whatever this process asks of its broker later, it asks one that has long ended."""
    hall = Hall("celery", workshop, place, nurseries, broker_url="redis://127.0.0.1:1/0")
    halls.append(hall)
    assert hall.executor.queue_depth("default") is None, "that one does not answer"
    assert chosen_executor().queue_depth("default") == 0, "the chosen one does"


def test_a_broker_that_comes_back_empty_costs_no_running_task(
    workshop: Workshop, place: Path, halls: list[Hall], nurseries: Nurseries
) -> None:
    server = Path(tempfile.mkdtemp(dir="/tmp"))
    server.chmod(0o755)
    broker = embedded.start_valkey(server)
    hall = Hall("celery", workshop, place, nurseries, broker_url=broker.url)
    halls.append(hall)
    try:
        worker = hall.start_worker()
        long = workshop.issue_one(flow_of("time.sleep(3); return 'went on'"))
        hall.publish(long)
        hall.running(long)
        broker.stop()
        broker = embedded.start_valkey(server)
        after = [workshop.issue_one(flow_of("return 1")) for _ in range(4)]
        hall.publish(*after)
        assert [hall.ended(m).outcome for m in after] == ["success"] * 4
        assert hall.ended(long).result == "went on"
        seen_at = Job.objects.get(kind="worker").progress_at
        wait_until(lambda: Job.objects.get(kind="worker").progress_at > seen_at, within_s=SOON_S)
        worker.terminate()
        assert worker.wait(SOON_S) == 0
    finally:
        broker.stop()
        shutil.rmtree(server, ignore_errors=True)


def test_b281_a_worker_whose_connection_to_the_broker_is_dead_is_unhealthy_until_it_consumes(
    workshop: Workshop, place: Path, halls: list[Hall], nurseries: Nurseries, settings: Any
) -> None:
    """It beats and its loop turns, but messages wait and it takes none: that is no progress."""
    settings.HEARTBEAT_DEAD_AFTER_S = TTL_S * 4 / 3
    broker = urlsplit(settings.BROKER_URL)
    with Proxy(broker.port or 0) as proxy:
        behind = broker._replace(netloc=broker.netloc.replace(f":{broker.port}", f":{proxy.port}"))
        hall = Hall("celery", workshop, place, nurseries, broker_url=behind.geturl())
        halls.append(hall)
        hall.executor = CeleryExecutor(app)  # it has a way of its own
        hall.start_worker()
        first = workshop.issue_one(flow_of("return 1"))
        hall.publish(first)
        assert hall.ended(first).outcome == "success"
        assert _is_healthy()
        assert proxy.numb() >= 1
        # One by one: the dead connection swallows as many as it has asked for, of those that come at once.
        for _ in range(5):
            hall.publish(workshop.issue_one(flow_of("return 2")))
        wait_until(lambda: not _is_healthy(), within_s=SOON_S)
        (job,) = Job.objects.filter(kind="worker")
        assert job.heartbeat_at > job.progress_at, "its process lives and beats"
        # The dead connection is noticed in the end, and the worker consumes over a new one.
        wait_until(lambda: hall.depth() == 0, within_s=2 * SOON_S)
        wait_until(_is_healthy, within_s=SOON_S)
        assert "takes none: restart it" in hall.log.read_text()
        assert "takes deliveries again" in hall.log.read_text()


def _is_healthy() -> bool:
    (worker,) = [one for one in health.health(EVERYTHING).components if one.kind == "worker"]
    return worker.is_healthy


def test_no_child_holds_the_broker_s_connection_open(
    workshop: Workshop, place: Path, halls: list[Hall], nurseries: Nurseries
) -> None:
    """Also not one that came later: the broker must see that its consumer is gone."""
    hall = Hall("celery", workshop, place, nurseries)
    halls.append(hall)
    worker = hall.start_worker()
    for pid in hall.children(worker):
        os.kill(pid, signal.SIGKILL)
    message = workshop.issue_one(flow_of("return 1"))
    hall.publish(message)
    assert hall.ended(message).outcome == "success"
    wait_until(lambda: len(hall.children(worker)) == 2, within_s=SOON_S)
    broker = redis.Redis.from_url(hall.broker_url)
    consuming = [one["addr"] for one in broker.client_list() if one["cmd"] == "brpop"]
    sockets = _sockets_from({int(address.rpartition(":")[2]) for address in consuming})
    own = sockets & _sockets_of(worker.pid)
    assert len(own) == 1
    for pid in hall.children(worker):
        assert not own & _sockets_of(pid)


def _sockets_of(pid: int) -> set[str]:
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.add(str(entry.readlink()))
    return {
        name.removeprefix("socket:[").rstrip("]") for name in found if name.startswith("socket:")
    }


def _sockets_from(ports: set[int]) -> set[str]:
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    fields = [line.split() for line in lines]
    return {each[9] for each in fields if int(each[1].rpartition(":")[2], 16) in ports}


def test_what_was_fetched_ahead_of_a_long_task_goes_back_for_others(
    workshop: Workshop, place: Path, halls: list[Hall], nurseries: Nurseries
) -> None:
    hall = Hall("celery", workshop, place, nurseries)
    halls.append(hall)
    hall.start_worker(concurrency=1)
    quick = [workshop.issue_one(flow_of("return 1")) for _ in range(10)]
    hall.publish(*quick)
    assert [hall.ended(message).outcome for message in quick] == ["success"] * 10
    long = workshop.issue_one(flow_of("time.sleep(60)"))
    behind = [workshop.issue_one(flow_of("return 1")) for _ in range(3)]
    hall.publish(workshop.issue_one(flow_of("return 1")), long, *behind)
    hall.running(long)
    wait_until(lambda: hall.depth() == 3, within_s=SOON_S)
    hall.start_worker(concurrency=1)
    assert [hall.ended(message).outcome for message in behind] == ["success"] * 3
    assert workshop.attempt(long).state == "running"
