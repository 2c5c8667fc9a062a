"""Unpacked sources go when nobody needs them, and come back when somebody does."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest
from django.utils import timezone

from scheduler_app.models import Bundle, Flow, FlowVersion, Run
from scheduler_app.processes import bundle_cache, bundles
from tests import factories

if TYPE_CHECKING:
    from pathlib import Path

    import psycopg

LONG_AGO = factories.at(0)


def version(flow: Flow, number: int) -> str:
    """The flow has this version, made long ago; the digest of its bundle."""
    digest, archive = bundles.pack_sources("flow.py", {"flow.py": f"N = {number}".encode()})
    bundle = Bundle.objects.create(
        digest=digest, main_path="flow.py", archive=archive, created_at=LONG_AGO
    )
    made = FlowVersion.objects.create(
        flow=flow,
        number=number,
        digest=f"{number:064}",
        definition={},
        bundle=bundle,
        created_at=LONG_AGO,
    )
    flow.current_version = made
    flow.save()
    return digest


def extract(digest: str, cache: Path, *, age_s: float) -> Path:
    folder = bundles.extract(digest, lambda: bytes(Bundle.objects.get(pk=digest).archive), cache)
    then = time.time() - age_s
    os.utime(folder, (then, then))
    return folder


@pytest.fixture
def flow(raw: Any) -> Flow:
    del raw
    return factories.make_flow()


def test_only_what_nobody_needs_goes_and_comes_back_when_it_is_asked_for(
    raw: psycopg.Connection[Any], flow: Flow, tmp_path: Path
) -> None:
    pinned, fresh, old, current = (version(flow, number) for number in range(101, 105))
    run = factories.make_run(flow=flow)
    pinned_version = FlowVersion.objects.get(bundle_id=pinned)
    Run.objects.filter(pk=run.pk).update(version=pinned_version, is_active=True, state="running")
    FlowVersion.objects.filter(bundle_id=fresh).update(created_at=timezone.now())
    for digest in (pinned, fresh, old, current):
        extract(digest, tmp_path, age_s=90_000)
    (tmp_path / ".new-left").mkdir()
    os.utime(tmp_path / ".new-left", (1, 1))
    assert sorted(bundle_cache.tidy(raw, tmp_path)) == sorted([old, ".new-left"])
    assert {one.name for one in tmp_path.iterdir()} == {pinned, fresh, current}
    again = extract(old, tmp_path, age_s=0)
    assert (again / "flow.py").read_text() == "N = 103"
    assert bundle_cache.tidy(raw, tmp_path) == [], "it was asked for just now"


def test_to_ask_for_one_is_a_use_of_it(
    raw: psycopg.Connection[Any], flow: Flow, tmp_path: Path
) -> None:
    old, _ = version(flow, 101), version(flow, 102)
    extract(old, tmp_path, age_s=90_000)
    bundles.extract(old, bytes, tmp_path)
    assert bundle_cache.tidy(raw, tmp_path) == []


def test_a_host_without_any_has_nothing_to_tidy(
    raw: psycopg.Connection[Any], tmp_path: Path
) -> None:
    assert bundle_cache.tidy(raw, tmp_path / "none") == []


def test_what_is_loaded_is_unpacked_again_before_it_runs(
    raw: psycopg.Connection[Any], flow: Flow, tmp_path: Path
) -> None:
    """A function of it may import another module of it only now."""
    del raw, flow
    source = (
        b"from scheduler_app.authoring import flow, task\n"
        b"@task\ndef t(): ...\n@flow(flow_id='g')\ndef g():\n    t()\n"
    )
    digest, archive = bundles.pack_sources("flow.py", {"flow.py": source, "late.py": b"N = 1"})
    for _ in range(2):
        bundles.flow_of_bundle(digest, lambda: archive, "g", tmp_path)
        assert (tmp_path / digest / "late.py").is_file()
        shutil.rmtree(tmp_path / digest)
