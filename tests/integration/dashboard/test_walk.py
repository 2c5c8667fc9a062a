"""Shown + filtered = total on every page and every list there is.

Driven by the URL maps of the dashboard and of the API: whoever adds a page or a list has it walked,
and is told when its address has a part that this walk cannot fill in.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from django.urls import URLPattern, reverse

from dashboard import urls as pages_of
from scheduler_app.api import urls as api_of
from scheduler_app.api.reading import NounList
from scheduler_app.models import (
    Attempt,
    Backfill,
    ExecutorEvent,
    Ghost,
    Incident,
    Review,
    Run,
    TaskInstance,
)
from scheduler_app.operations.backfill import create_backfill
from scheduler_app.operations.connections import set_connection
from scheduler_app.operations.key_limits import set_limit
from scheduler_app.operations.variables import set_variable
from scheduler_app.queries import exports, nouns, topics
from scheduler_app.queries.list_filter import LIMIT_DEFAULT, Lens
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.rules.freezing import ScopeKind
from scheduler_app.transitions.incident import raise_incident
from tests import factories
from tests.integration.dashboard.pages import Page, with_lens
from tests.integration.dashboard.test_filtered import haunt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.test import Client

    from tests.integration.dashboard.scene import Scene
    from tests.world import World

LENSES = ("", "1", "only")
# Answered by POST alone, without a login, or with bytes instead of a page.
NO_PAGES = {
    "login", "logout", "set_look", "flow_pause", "flow_unpause", "job_stop", "job_drain", "job_undrain", "lease_release", "ghost_stop",
    "run_by_key", "attempt_log", "record_reviewed", "record_unreviewed",
    "incident_acknowledge",
    "flow_backfill", "backfill_pause", "backfill_unpause", "backfill_cancel", "backfill_limit",
    "variable_new", "variable_edit", "variable_delete", "connection_new", "connection_edit", "connection_delete", "limit_new", "limit_edit", "limit_remove",  # forms
    "runs_mark", "task_instances_mark", "runs_clear", "task_instances_clear", "runs_freeze",
    "task_instances_terminate", "pool_new", "pool_edit", "pool_delete", "task_instances_freeze", "clear_batch", "clear_undo",  # need a selection, or what came of one
    "task_instance_retry",
    "run_retry", "run_cancel_retry", "review_approve", "review_dismiss", "guard_set", "guard_stop", "guard_start",
    "run_terminate", "task_instance_terminate",  # plans of acts count what they would do
    *(f"{kind}_{verb}" for kind in ScopeKind for verb in ("freeze", "thaw")),
}  # fmt: skip
# Pages that list nothing, and say so by having no row.
TABS = {
    "flow_detail": ("runs", "grid", "graph", "calendar", "versions", "details"),
    "run_detail": (
        "summary",
        "graph",
        "timeline",
        "attempts",
        "callbacks",
        "events",
        "details",
        "filtered",
    ),
    "task_instance_detail": ("attempts", "log", "callbacks", "events", "details"),
}
# Lists whose address alone shows the other half.
EXPLORERS = {"record_list"}
# A tab of one half of a record, which counts in a sentence of its own.
ONE_HALF = "tab=filtered"


def values(scene: Scene, world: World) -> dict[str, Any]:
    """What the parts of addresses are filled in with."""
    ghost = Ghost.objects.first() or haunt(world)
    event = ExecutorEvent.objects.order_by("id").first()
    attempt = Attempt.objects.filter(ti_id=scene.retried).order_by("fence").first()
    assert event is not None
    assert attempt is not None
    raise_incident(world.connection, kind="nobody_listens", subject="q", message="Nobody listens.")
    incident = Incident.objects.get()
    take_over = factories.make_take_over(attempt=attempt)
    review = Review.objects.create(
        guard="actions_max",
        action="clear",
        object_kind="run",
        object_id=str(scene.failed),
        flow_id="nightly_sales",
        request={"task_instances": None, "options": {"only_failed": True}, "note": None},
        summary="There were 60 on this flow within 3600 s; 60 are allowed.",
        asked_by="robot",
        created_at=factories.at(1),
    )
    create_backfill(
        flow_id="nightly_sales",
        from_date=datetime(2020, 1, 1, tzinfo=UTC),
        to_date=datetime(2020, 1, 3, tzinfo=UTC),
        actor="ana",
        reason="for the walk",
    )
    set_variable(key="limit", value=[1, 2], actor="ana", reason="for the walk")
    set_connection(
        connection_id="warehouse", conn_type="postgres", actor="ana", reason="for the walk"
    )
    set_limit(key="limit", slots=2, actor="ana", reason="for the walk")
    mapped = TaskInstance.objects.get(pk=scene.retried)
    # One instance: the page of a run has one row for all of a mapped task.
    mapped.pk, mapped.attempt_id = None, None
    mapped.task_id, mapped.map_index = "each_part", 0
    mapped.save(force_insert=True)
    return {
        "take_over": take_over.pk,
        "flow_id": "nightly_sales",
        "run_id": "manual__healed",
        "run": scene.healed,
        "ti": scene.retried,
        "task_id": mapped.task_id,
        "name": "default",
        "connection_id": "warehouse",
        "event": event.pk,
        "attempt_id": attempt.pk,
        "job_id": world.worker,
        "ghost": ghost.pk,
        "incident": incident.pk,
        "review": review.pk,
        "backfill": Backfill.objects.get().pk,
        "number": 1,
        "key": "limit",
    }


def filled(pattern: URLPattern, known: dict[str, Any], where: str) -> dict[str, Any]:
    missing = set(pattern.pattern.converters) - known.keys()
    assert not missing, f"{where} has {missing} in its address: give them a value in values()"
    return {name: known[name] for name in pattern.pattern.converters}


def every_page(known: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Name and address of every page of the dashboard, each tab of its own."""
    for pattern in pages_of.urlpatterns:
        name = str(pattern.name)
        if name in NO_PAGES:
            continue
        address = reverse(f"dashboard:{name}", kwargs=filled(pattern, known, name))
        yield name, address
        for tab in TABS.get(name, ()):
            yield name, f"{address}?tab={tab}"


def every_list(known: dict[str, Any]) -> Iterator[tuple[str, type[NounList]]]:
    """Address of every list of the API, and its view."""
    for pattern in api_of.V1:
        if not isinstance(pattern, URLPattern):
            continue
        view: Any = getattr(pattern.callback, "cls", object)
        if not issubclass(view, NounList):
            continue
        address = "/api/v1/" + str(pattern.pattern)
        for name, value in filled(pattern, known, address).items():
            for kind in ("str", "int", "uuid", "path"):
                address = address.replace(f"<{kind}:{name}>", str(value))
        assert "<" not in address, address
        yield address, view


@pytest.fixture
def known(scene: Scene, world: World) -> dict[str, Any]:
    return values(scene, world)


def test_on_every_page_the_two_halves_make_the_whole_under_every_lens(
    known: dict[str, Any], reader: Client
) -> None:
    walked = 0
    for name, address in every_page(known):
        seen = [Page(reader, with_lens(address, lens) if lens else address) for lens in LENSES]
        assert [page.response.status_code for page in seen] == [200, 200, 200], address
        if not seen[0].has_counts():
            rows = [row for page in seen for row in page.rows()]
            assert not rows or ONE_HALF in address, f"{address} lists rows and counts none"
            continue
        walked += 1
        clean, both, only = seen
        counts = clean.counts()
        assert counts.shown + counts.filtered == counts.total, address
        assert sum(counts.by_reason.values()) == counts.filtered, address
        assert both.counts() == only.counts() == counts, address
        if not clean.rows() + both.rows() + only.rows():
            assert "tab=graph" in address or counts.total == 0, address
            continue  # a picture
        assert len(both.rows()) == min(counts.total, LIMIT_DEFAULT), address
        if counts.total <= LIMIT_DEFAULT:
            assert len(both.filtered_rows()) == counts.filtered, address
        assert len(only.rows()) == len(only.filtered_rows()) == counts.filtered, address
        if name in EXPLORERS:
            assert len(clean.rows()) == counts.filtered, address
        else:
            assert (len(clean.rows()), clean.filtered_rows()) == (counts.shown, []), address
    assert walked > 20


def test_every_page_follows_topics_that_there_are(known: dict[str, Any], reader: Client) -> None:
    followed = set()
    for _, address in every_page(known):
        text = Page(reader, address).root.find(".//*[@data-topics]")
        if text is not None:
            followed |= {topics.check(topic) for topic in text.attrib["data-topics"].split()}
    assert {"backfills", "pools", "runs", "variables"} <= followed


def test_in_every_list_of_the_api_and_its_export_the_two_halves_make_the_whole(
    known: dict[str, Any], reader: Client
) -> None:
    walked = 0
    for address, view in every_list(known):
        walked += 1
        rows = {lens: list(_all_pages(reader, address, lens)) for lens in LENSES}
        counts = reader.get(address).json()["counts"]
        assert counts["shown"] + counts["filtered"] == counts["total"], address
        assert sum(counts["by_reason"].values()) == counts["filtered"], address
        assert len(rows[""]) == counts["shown"], address
        assert len(rows["1"]) == counts["total"], address
        assert len(rows["only"]) == counts["filtered"], address
        for row in rows["only"]:
            assert row["filter_code"] in counts["by_reason"], address
            assert row["filter_reason"].endswith("."), address
        for code, number in counts["by_reason"].items():
            assert len(list(_all_pages(reader, address, "", why=code))) == number, address
        if not view.noun.name.startswith("flow-versions") and "/flows/nightly" not in address:
            export = exports.Export(view.noun, view.asked(filtered=Lens.ALL), EVERYTHING)
            lines = b"".join(exports.lines(export, exports.FORMATS["ndjson"][1])).splitlines()
            assert len(lines) == counts["total"] == export.counts.total, address
    assert walked >= len(nouns.NOUNS) - 1, "incidents are part of pages alone"


def _all_pages(reader: Client, address: str, lens: str, **more: str) -> Iterator[dict[str, Any]]:
    query: dict[str, str] = {"limit": "7", **({"filtered": lens} if lens else {}), **more}
    answer = reader.get(address, query).json()
    while True:
        yield from answer["results"]
        if not answer["next"]:
            return
        following = urlsplit(answer["next"])
        answer = reader.get(f"{following.path}?{following.query}").json()


def test_what_is_filtered_in_any_list_is_in_the_explorer_and_nothing_else_is(
    known: dict[str, Any], reader: Client
) -> None:
    del known
    explorer = reader.get("/api/v1/records/?filtered=only&limit=500").json()
    found = {(row["noun"], row["record_id"]): row["filter_code"] for row in explorer["results"]}
    listed: dict[tuple[str, str], str] = {}
    for noun, key in (
        ("run", "id"),
        ("task_instance", "id"),
        ("attempt", "id"),
        ("executor_event", "id"),
        ("flow", "flow_id"),
        ("job", "id"),
    ):
        path = noun.replace("_", "-") + "s"
        answer = reader.get(f"/api/v1/{path}/?filtered=only&limit=500").json()
        listed |= {(noun, str(row[key])): row["filter_code"] for row in answer["results"]}
    assert {key: code for key, code in found.items() if key[0] != "run_attempt"} == listed
    totals = explorer["counts"]["total"]
    assert totals > Run.objects.count() + TaskInstance.objects.count()
