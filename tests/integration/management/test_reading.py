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

from scheduler_app.models import Audit, Lease, LeaseEvent
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
        assert told("ghosts") == "0 ghost attempts, 0 events of ghosts\n"

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
        assert shown.endswith("1 ghost attempts, 1 events of ghosts\n")
        assert len(json.loads(told("ghosts", "--json"))["events"]) == 1


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
