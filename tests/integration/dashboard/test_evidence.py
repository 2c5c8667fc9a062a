"""Evidence: everything about one record in one file that says by itself whether it was changed."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import Attempt, Audit, ExecutorEvent, Ghost, Job, TakeOver
from scheduler_app.operations.mark_reviewed import mark_reviewed
from scheduler_app.queries import evidence
from scheduler_app.queries.scope import EVERYTHING, NOTHING
from scheduler_app.rules.errors import InvalidInput, NotFound
from tests.integration.commands.conftest import call
from tests.integration.dashboard.pages import Page
from tests.integration.dashboard.test_filtered import haunt

if TYPE_CHECKING:
    from pathlib import Path

    from django.test import Client

    from tests.integration.commands.conftest import Call
    from tests.integration.dashboard.scene import Scene
    from tests.world import World

__all__ = ["call"]  # a fixture


def opened(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def rows(files: dict[str, bytes], name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in files[f"{name}.ndjson"].splitlines()]


def test_a_run_with_a_refused_delivery_is_told_whole(scene: Scene, reader: Client) -> None:
    attempt = Attempt.objects.filter(ti_id=scene.retried).earliest("fence")
    mark_reviewed(keys=[f"attempt:{attempt.pk}"], actor="ada", reason="it wrote nothing")
    run = attempt.run_id
    assert run is not None
    answer = reader.get(f"/api/v1/runs/{run}/evidence/")
    assert answer.status_code == 200
    assert answer["Content-Type"] == "application/zip"
    files = opened(answer.content)
    manifest = json.loads(files["manifest.json"])
    assert manifest["subject"] == {"kind": "run", "id": str(run)}
    assert manifest["exported_by"] == "ana"
    told = {row["id"]: row for row in rows(files, "attempts")}
    assert told.keys() == {str(one.pk) for one in Attempt.objects.filter(run_id=run)}
    aside = told[str(attempt.pk)]
    assert aside["filter_reason"].endswith(".")
    assert aside["filter_detail"]
    events = ExecutorEvent.objects.filter(run_id=run)
    assert [row["id"] for row in rows(files, "executor_events")] == sorted(e.pk for e in events)
    counts = manifest["counts"]["attempts"]
    assert counts["shown"] + counts["filtered"] == counts["total"] == len(told)
    assert counts["filtered"] >= 1
    assert rows(files, "reviewed")[0]["note"] == "it wrote nothing"
    assert "mark_reviewed" in {row["action"] for row in rows(files, "audit")}
    assert rows(files, "flow_versions")[0]["definition"]["flow_id"] == "nightly_sales"
    shards = {row["shard"] for row in rows(files, "lease_events")}
    assert shards == {3}
    workers = {row["worker_job_id"] for row in rows(files, "attempts")} - {None}
    told_jobs = {row["id"] for row in rows(files, "jobs")}
    known = Job.objects.filter(pk__in=workers).values_list("pk", flat=True)
    assert told_jobs >= {str(one) for one in known}
    timeline = rows(files, "timeline")
    assert [row["no"] for row in timeline] == list(range(1, len(timeline) + 1))
    assert [row["at"] for row in timeline] == sorted(row["at"] for row in timeline)
    assert {row["file"] for row in timeline} >= {"attempts", "executor_events", "lease_events"}
    assert {"report.html", "timeline.svg"} <= manifest["files"].keys()
    page = files["report.html"].decode()
    assert aside["filter_code"] in page
    assert f"What happened: {len(timeline)} moments" in page
    assert files["timeline.svg"].decode() in page
    assert evidence.faults_of(answer.content) == []
    table = list(csv.DictReader(io.StringIO(files["tables/timeline.csv"].decode())))
    assert [row["what"] for row in table] == [row["what"] for row in timeline]
    assert evidence.faults_of(answer.content) == []
    noted = Audit.objects.get(action="export_evidence")
    assert noted.after == {"content_sha256": manifest["content_sha256"]}
    assert answer["X-Daylight-Sha256"] == manifest["content_sha256"]


def test_any_change_of_any_file_is_found_out(scene: Scene) -> None:
    found = evidence.gather(EVERYTHING, evidence.Kind.RUN, scene.running)
    assert found.logs, "the running attempt has printed"
    files = opened(evidence.zipped(found, exported_by="ana"))

    def packed(changed: dict[str, bytes]) -> bytes:
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as archive:
            for name, data in changed.items():
                archive.writestr(name, data)
        return made.getvalue()

    assert evidence.faults_of(packed(files)) == []
    for name in files.keys() - {"manifest.json"}:
        faults = evidence.faults_of(packed({**files, name: files[name] + b" "}))
        assert faults == [f"{name}: its content was changed"]
    (missing,) = evidence.faults_of(packed({n: d for n, d in files.items() if "events" not in n}))[
        :1
    ]
    assert "missing" in missing
    (added,) = evidence.faults_of(packed({**files, "extra.txt": b"x"}))
    assert added == "extra.txt: not in the manifest"
    manifest = json.loads(files["manifest.json"])
    manifest["files"]["attempts.ndjson"]["sha256"] = "0" * 64
    faults = evidence.faults_of(packed({**files, "manifest.json": json.dumps(manifest).encode()}))
    assert "the manifest's own digest of all files does not hold" in faults
    for rubbish in (b"", b"{}", b"[1]", b"PK\x03\x04", packed({"a": b"b"})):
        with pytest.raises(InvalidInput):
            evidence.faults_of(rubbish)


def test_every_kind_of_subject_has_its_evidence_as_one_json_document_too(
    scene: Scene, reader: Client, world: World
) -> None:
    ghost, take = haunt(world), TakeOver.objects.get(shard=3)
    aside = Attempt.objects.get(pk=scene.ghost)
    for address, file, wanted in (
        (f"task-instances/{scene.retried}", "task_instances", scene.retried),
        (f"attempts/{aside.pk}", "attempts", str(aside.pk)),
        (f"ghosts/{ghost.pk}", "ghosts", ghost.pk),
        (f"take-overs/{take.pk}", "take_overs", take.pk),
    ):
        answer = reader.get(f"/api/v1/{address}/evidence/?format=json")
        assert answer.status_code == 200, address
        whole = json.loads(answer.content)
        assert wanted in [row["id"] for row in whole["rows"][file]], address
        assert evidence.faults_of(answer.content) == [], address
        whole["rows"][file][0]["id"] = "another"
        assert evidence.faults_of(json.dumps(whole).encode()), address
    items = {row["attempt_id"] for row in whole["rows"]["take_over_items"]}
    assert items <= {row["id"] for row in whole["rows"]["attempts"]}
    assert whole["rows"]["inquiries"]


def test_an_attempts_evidence_names_the_one_that_won(scene: Scene) -> None:
    first = Attempt.objects.filter(ti_id=scene.retried).earliest("fence")
    found = evidence.gather(EVERYTHING, evidence.Kind.ATTEMPT, first.pk, with_logs=False)
    (aside,) = (row for row in found.rows["attempts"] if row["id"] == str(first.pk))
    assert aside["superseded_by"] in {row["id"] for row in found.rows["attempts"]}
    assert found.logs == {}
    assert "Logs were left out, as asked." in found.omitted


def test_what_nobody_may_see_and_what_is_not_there_has_none(scene: Scene, reader: Client) -> None:
    with pytest.raises(NotFound):
        evidence.gather(NOTHING, evidence.Kind.RUN, scene.running)
    assert reader.get("/api/v1/runs/99999/evidence/").status_code == 404
    for wrong in ("format=exe", "logs=maybe"):
        assert reader.get(f"/api/v1/runs/{scene.running}/evidence/?{wrong}").status_code == 400
    assert not Audit.objects.filter(action="export_evidence").exists()


def test_pages_offer_it_and_the_command_writes_and_verifies_it(
    scene: Scene, reader: Client, world: World, call: Call, tmp_path: Path
) -> None:
    ghost = haunt(world)
    take = TakeOver.objects.get(shard=3)
    for page, address in (
        (f"/runs/{scene.running}/", f"/api/v1/runs/{scene.running}/evidence/"),
        (f"/attempts/{scene.ghost}/", f"/api/v1/attempts/{scene.ghost}/evidence/"),
        (f"/task-instances/{scene.retried}/", f"/api/v1/task-instances/{scene.retried}/evidence/"),
        (f"/ghosts/{ghost.pk}/", f"/api/v1/ghosts/{ghost.pk}/evidence/"),
        (f"/leases/take-overs/{take.pk}/", f"/api/v1/take-overs/{take.pk}/evidence/"),
    ):
        assert address in Page(reader, page).links(), page
    file = tmp_path / "evidence.zip"
    written = call("evidence", "ghost", str(ghost.pk), "--output", str(file))
    assert (written.code, "digest" in written.err) == (0, True)
    verified = call("evidence", "verify", str(file))
    assert (verified.code, "intact" in verified.out) == (0, True)
    changed = opened(file.read_bytes())
    changed["ghosts.ndjson"] = changed["ghosts.ndjson"].replace(b"host-9", b"host-8")
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in changed.items():
            archive.writestr(name, data)
    refused = call("evidence", "verify", str(file))
    assert (refused.code, "ghosts.ndjson: its content was changed" in refused.err) == (1, True)
    assert call("evidence", "verify", str(tmp_path / "none")).code == 1
    assert call("evidence", "run", "999").code == 1
    assert call("evidence", "run", "x").code == 2
    assert Ghost.objects.filter(pk=ghost.pk).exists()
