"""What only Celery has: a broker that may go away."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from scheduler_app.launch import embedded
from scheduler_app.models import Job
from tests.integration.executors.conftest import SOON_S, Hall, flow_of
from tests.workshop import wait_until

if TYPE_CHECKING:
    from tests.workshop import Workshop


def test_a_broker_that_comes_back_empty_costs_no_running_task(
    workshop: Workshop, place: Path, halls: list[Hall]
) -> None:
    server = Path(tempfile.mkdtemp(dir="/tmp"))
    server.chmod(0o755)
    broker = embedded.start_valkey(server)
    hall = Hall("celery", workshop, place, broker_url=broker.url)
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
