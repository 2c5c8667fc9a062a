"""``manage.py leases``, ``ghosts`` and ``export`` answer people and scripts."""

from __future__ import annotations

import csv
import io
import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone

from scheduler_app.models import Audit, Inventory, Job, Lease, LeaseEvent
from tests import factories


def told(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out, stderr=StringIO())
    return out.getvalue()


@pytest.mark.django_db
class TestLeases:
    def test_each_shard_has_a_line_with_its_holder(self) -> None:
        job = factories.make_job(kind="scheduler", hostname="host-9")
        Lease.objects.filter(shard=3).update(holder=job.id, token=7, expires_at=factories.at(10**9))
        lines = told("leases").splitlines()
        assert len(lines) == 1 + Lease.objects.count()
        (held,) = [line for line in lines if "host-9" in line]
        assert held.split()[:4] == ["3", "held", "7", str(job.id)]
        assert sum(" free " in line for line in lines) == Lease.objects.count() - 1

    def test_the_newest_events_come_along_when_asked_for(self) -> None:
        for kind in ("acquired", "expired"):
            LeaseEvent.objects.create(shard=3, kind=kind, token=1, at=factories.at(1), detail={})
        assert "acquired" not in told("leases")
        newest = told("leases", "--events", "1")
        assert "expired" in newest
        assert "acquired" not in newest
        answer = json.loads(told("leases", "--json", "--events", "9"))
        assert [event["kind"] for event in answer["events"]] == ["expired", "acquired"]
        assert len(answer["leases"]) == Lease.objects.count()


@pytest.mark.django_db
class TestGhosts:
    def test_none_is_said_too(self) -> None:
        factories.make_attempt()
        assert told("ghosts") == (
            "0 ghosts now, 0 suspects; 0 ghost attempts, 0 events of ghosts."
            " Nothing was compared yet.\n"
        )

    def test_each_is_shown_with_its_reason(self) -> None:
        ghost = factories.make_ghost_attempt(hostname="host-9")
        factories.make_event(
            verdict="ghost", verdict_code="ghost_no_record", filter_code="ghost_no_record"
        )
        factories.make_event(
            verdict="refused", verdict_code="refused_frozen", filter_code="refused_frozen"
        )
        shown = told("ghosts")
        assert str(ghost.id) in shown
        assert "host-9" in shown
        assert "was issued" in shown
        assert "1 ghost attempts, 1 events of ghosts." in shown
        assert len(json.loads(told("ghosts", "--json"))["events"]) == 1

    def test_a_script_learns_by_the_exit_code_whether_something_haunts(self) -> None:
        factories.make_ghost(kind="runs_too_long")
        factories.make_ghost(ended_at=factories.at(5))
        told("ghosts", "--check")
        haunting = factories.make_ghost(hostname="host-9")
        with pytest.raises(SystemExit) as ended:
            told("ghosts", "--check")
        assert ended.value.code == 1
        shown = told("ghosts")
        assert "1 ghosts now, 1 suspects" in shown
        assert len(told("ghosts", "--filtered").splitlines()) == len(shown.splitlines()) + 1
        answer = json.loads(told("ghosts", "--json"))
        assert haunting.id in [ghost["id"] for ghost in answer["ghosts"]]


@pytest.mark.django_db(transaction=True)
class TestAudit:
    def test_ghosts_are_compared_now_with_the_real_broker(self) -> None:
        worker = factories.make_job(detail={"queues": ["default"]})
        Job.objects.update(heartbeat_at=timezone.now())
        Inventory.objects.create(
            job_id=worker.id,
            hostname="host-9",
            pid=10,
            at=timezone.now(),
            executions=[{"attempt": str(factories.uuid7(3)), "pid": 77, "age_s": 8.0}],
        )
        with pytest.raises(SystemExit) as ended:
            told("audit", "ghosts")
        assert ended.value.code == 1
        # As a worker would go on saying it: on a busy machine the first answer may take a while.
        Job.objects.update(heartbeat_at=timezone.now())
        Inventory.objects.update(at=timezone.now())
        out = StringIO()
        with pytest.raises(SystemExit):
            call_command("audit", "ghosts", "--json", stdout=out)
        answer = json.loads(out.getvalue())
        assert answer["is_complete"] is True
        assert answer["compared"] == 1
        assert answer["read"]["queues"] == 1
        (ghost,) = answer["ghosts"]
        assert "host-9:77 executes attempt" in ghost["sentence"]
        Inventory.objects.update(executions=[])
        assert "Compared 0: 0 ghosts, 0 suspects." in told("audit", "ghosts")

    def test_a_worker_that_says_nothing_leaves_it_open(self) -> None:
        factories.make_job(detail={"queues": []})
        with pytest.raises(SystemExit) as ended:
            told("audit", "ghosts")
        assert ended.value.code == 2

    def test_visibility_answers_in_json_too(self) -> None:
        factories.make_ghost_attempt()
        answer = json.loads(told("audit", "visibility", "--json"))
        assert (answer["compared"]["attempt"], answer["found"]) == (1, 0)


@pytest.mark.django_db(transaction=True)  # an export declares its cursor in a transaction
class TestExport:
    def test_a_list_is_written_under_the_filters_of_the_api(self, tmp_path: Path) -> None:
        flow = factories.make_flow()
        kept = factories.make_run(flow=flow, state="failed", note="=1")
        factories.make_run(flow=flow)
        factories.make_run(state="failed")
        file = tmp_path / "runs.csv"
        call_command(
            "export", "runs", f"flow_id={flow.flow_id}", "state=failed", "--output", str(file),
            stderr=StringIO(),
        )  # fmt: skip
        (row,) = csv.DictReader(io.StringIO(file.read_text(), newline=""))
        assert (row["id"], row["note"]) == (str(kept.id), "'=1")
        entry = Audit.objects.get(action="export")
        assert entry.object_id == "runs"
        assert entry.after is not None
        assert entry.after["rows"] == 1

    def test_standard_output_is_the_default(self, capfdbinary: Any) -> None:
        factories.make_ghost_attempt()
        err = StringIO()
        call_command("export", "attempts", "filtered=only", "--format", "ndjson", stderr=err)
        (line,) = capfdbinary.readouterr().out.splitlines()
        assert json.loads(line)["filter_code"] == "ghost_no_record"
        assert "1 rows written; the list has 0 shown and 1 filtered" in err.getvalue()

    @pytest.mark.parametrize(
        ("arguments", "code", "line"),
        [
            (("runs", "colour=red"), 1, "colour: no such parameter"),
            (("runs", "state"), 2, "NAME=VALUE"),
            (("runs", "--output", "/nowhere/at/all.csv"), 1, "/nowhere/at/all.csv"),
        ],
    )
    def test_a_fault_is_one_line(
        self, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, line: str
    ) -> None:
        with pytest.raises(SystemExit) as ended:
            call_command("export", *arguments)
        assert ended.value.code == code
        (told_line,) = capsys.readouterr().err.splitlines()
        assert line in told_line
