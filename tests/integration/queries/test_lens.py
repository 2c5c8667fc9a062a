"""The lens: on every list shown + filtered = total, and each filtered row says why."""

from __future__ import annotations

import random
from typing import Any

import pytest
from django.db import connection

from scheduler_app.models import Attempt, Flow, TaskInstance, Variable
from scheduler_app.queries import (
    attempts,
    filters,
    lens,
    nouns,
    pools,
    runs,
    task_instances,
    variables,
)
from scheduler_app.queries.list_filter import Lens, ListFilter
from scheduler_app.queries.scope import EVERYTHING, NOTHING, Scope
from scheduler_app.rules import errors
from tests import factories

NOUNS: list[tuple[lens.Noun[Any], type[ListFilter]]] = list(nouns.NOUNS.values())
WITH_STANDING = [noun for noun in NOUNS if issubclass(noun[0].row, lens.Standing)]

pytestmark = pytest.mark.django_db


def fill(seed: int = 7) -> None:
    """Rows of every kind with a standing, current and filtered, ghosts among them."""
    chance = random.Random(seed)
    for number in range(4):
        flow = factories.make_flow(removed_at=factories.at(5) if number == 3 else None)
        for state in ("running", "success", "failed"):
            code = chance.choice([None, None, "ghost_run", "imported_duplicate"])
            run = factories.make_run(flow=flow, state=state, filter_code=code)
            for task in ("a", "b"):
                ti = factories.make_task_instance(
                    run=run,
                    task_id=task,
                    state=chance.choice(["running", "success", "failed", "queued"]),
                )
                factories.make_attempt(
                    ti=ti, state="ended", outcome="failed", filter_code="superseded_by_retry"
                )
                attempt = factories.make_attempt(ti=ti, try_number=2)
                factories.make_event(attempt=attempt)
                factories.make_event(
                    attempt=attempt,
                    verdict="refused",
                    verdict_code="duplicate_delivery",
                    filter_code="duplicate_delivery",
                )
    factories.make_ghost_attempt()
    factories.make_job()
    factories.make_job(ended_at=factories.at(9))
    factories.make_job(state="dead")
    factories.make_ghost()
    factories.make_ghost(ended_at=factories.at(9))


def test_a_kept_statement_reads_what_is_there_now() -> None:
    asked = filters.RunFilter(state=("running",))
    before = lens.page(runs.NOUN, asked, EVERYTHING)
    run = factories.make_run(state="running")
    after = lens.page(runs.NOUN, asked, EVERYTHING)
    assert after.counts.shown == before.counts.shown + 1
    assert after.rows[0].id == run.id


def everything(noun: lens.Noun[Any], asked: ListFilter) -> list[Any]:
    """All rows, page by page."""
    rows: list[Any] = []
    for _ in range(500):
        page = lens.page(noun, asked, EVERYTHING)
        rows += page.rows
        if not page.next_cursor:
            return rows
        asked = asked.evolve(cursor=page.next_cursor)
    raise AssertionError("paging does not end")


@pytest.mark.parametrize("seed", range(6))
def test_counts_obey_every_filter_but_the_lens(seed: int) -> None:
    fill(seed)
    chance = random.Random(seed)
    for _ in range(12):
        asked = filters.AttemptFilter(
            state=tuple(chance.sample(["issued", "running", "ended"], chance.randint(0, 2))),
            task_id=tuple(chance.sample(["a", "b", "c"], chance.randint(0, 2))),
            try_number=tuple(chance.sample([1, 2], chance.randint(0, 1))),
            flow_id=tuple(
                chance.sample(
                    [*Flow.objects.values_list("flow_id", flat=True)], chance.randint(0, 2)
                )
            ),
        )
        rows = [
            row
            for row in everything(attempts.NOUN, filters.AttemptFilter(filtered=Lens.ALL))
            if (not asked.state or row.state in asked.state)
            and (not asked.task_id or row.task_id in asked.task_id)
            and (not asked.try_number or row.try_number in asked.try_number)
            and (not asked.flow_id or row.flow_id in asked.flow_id)
        ]
        shown = {row.id for row in rows if not row.is_filtered}
        aside = {row.id for row in rows if row.is_filtered}
        for view, expected in (
            (Lens.CURRENT, shown),
            (Lens.ONLY, aside),
            (Lens.ALL, shown | aside),
        ):
            page = lens.page(attempts.NOUN, asked.evolve(filtered=view, limit=500), EVERYTHING)
            assert {row.id for row in page.rows} == expected
            assert (page.counts.shown, page.counts.filtered) == (len(shown), len(aside))


def test_a_ghost_without_parents_is_listed() -> None:
    ghost = factories.make_ghost_attempt()
    page = attempts.page(filters.AttemptFilter(filtered=Lens.ONLY), EVERYTHING)
    assert [row.id for row in page.rows] == [ghost.id]
    assert (page.rows[0].flow_id, page.rows[0].run_id, page.rows[0].ti) == (None, None, None)


def test_a_task_instance_whose_run_is_lost_is_listed_and_counted() -> None:
    ti = factories.make_task_instance()
    TaskInstance.objects.filter(id=ti.id).update(run_id=987_654)
    page = task_instances.page(filters.TaskInstanceFilter(), EVERYTHING)
    assert [(row.id, row.flow_id) for row in page.rows] == [(ti.id, None)]
    assert page.counts.shown == 1


def test_pages_are_stable_while_rows_arrive() -> None:
    first = [factories.make_run() for _ in range(7)]
    page = runs.page(filters.RunFilter(limit=3), EVERYTHING)
    seen = [row.id for row in page.rows]
    factories.make_run()
    while page.next_cursor:
        page = runs.page(filters.RunFilter(limit=3, cursor=page.next_cursor), EVERYTHING)
        seen += [row.id for row in page.rows]
    assert seen == sorted((run.id for run in first), reverse=True)


@pytest.mark.parametrize(
    "cursor",
    [
        "!",
        "x" * 3000,
        "W10",  # []
        "WyItaWQiLG51bGwsbnVsbF0",  # ["-id", null, null]
        "WyItaWQiLCJhIiwiYiJd",  # ["-id", "a", "b"]
        "WyItaWQiLDk5OTk5OTk5OTk5OTk5OTk5OTk5OTksOTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5XQ",
        "WyItaWQiLHsiYSI6MX0sMV0",  # ["-id", {"a": 1}, 1]
        "ÿ",
    ],
)
def test_a_cursor_that_is_none_is_refused(cursor: str) -> None:
    with pytest.raises(errors.InvalidInput, match="cursor"):
        runs.page(filters.RunFilter(cursor=cursor), EVERYTHING)


def test_a_cursor_of_another_order_is_refused() -> None:
    for _ in range(2):
        factories.make_run()
    cursor = runs.page(filters.RunFilter(limit=1), EVERYTHING).next_cursor
    with pytest.raises(errors.InvalidInput, match="order=-id, not for order=id"):
        runs.page(filters.RunFilter(cursor=cursor, order="id"), EVERYTHING)


def test_a_narrow_scope_sees_its_flows_in_rows_and_counts() -> None:
    mine, other = factories.make_run(), factories.make_run()
    for run in (mine, other):
        factories.make_event(
            attempt=factories.make_attempt(ti=factories.make_task_instance(run=run))
        )
    factories.make_ghost_attempt()
    scope = Scope(flow_ids=frozenset({mine.flow_id}), sees_shared=False)
    for noun, kind in NOUNS:
        page = lens.page(noun, kind(filtered=Lens.ALL), scope)
        assert len(page.rows) == page.counts.total
        for row in page.rows:
            assert row.flow_id == mine.flow_id
    operator = Scope(flow_ids=frozenset({mine.flow_id}), sees_shared=True)
    seen = attempts.page(filters.AttemptFilter(filtered=Lens.ALL), operator)
    assert {row.flow_id for row in seen.rows} == {mine.flow_id, None}


def test_a_large_list_is_counted_up_to_the_cap_unless_asked_to_be_exact() -> None:
    run = factories.make_run()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO attempt (id, run_id, kind, queue, pool, pool_slots, state, is_live,"
            " is_accepted, publish_count, outcome, ended_at, filter_code, filtered_at, filter_detail)"
            " SELECT gen_random_uuid(), %s, 'task', '', '', 0, 'ended', false, false, 0, 'lost', now(),"
            " c.code, CASE WHEN c.code IS NOT NULL THEN now() END,"
            " CASE WHEN c.code IS NOT NULL THEN '{}'::jsonb END"
            " FROM generate_series(1, 10500), (VALUES (NULL), ('lost_worker')) c (code)",
            [run.id],
        )
    capped = lens.counts(attempts.NOUN, filters.AttemptFilter(), EVERYTHING)
    assert (capped.shown, capped.filtered, capped.total) == (10_000, 10_000, 20_000)
    assert not capped.exact
    assert sum(capped.by_reason.values()) == capped.filtered
    exact = lens.counts(attempts.NOUN, filters.AttemptFilter(count="exact"), EVERYTHING)
    assert (exact.shown, exact.filtered, exact.exact) == (10_500, 10_500, True)
    page = attempts.page(filters.AttemptFilter(count="exact", limit=2), EVERYTHING)
    assert page.counts == exact
    assert Attempt.objects.count() == exact.total


def test_the_state_that_is_shown_is_the_state_that_is_filtered_by() -> None:
    running = factories.make_run()
    frozen = factories.make_run(frozen_at=factories.at(1))
    held = factories.make_task_instance(run=frozen, state="running", held_by=5)
    ended = factories.make_task_instance(run=frozen, state="success", held_by=5)
    for state, run in (("running", running), ("frozen", frozen)):
        rows = runs.page(filters.RunFilter(state=(state,)), EVERYTHING).rows
        assert [(row.id, row.state) for row in rows] == [(run.id, state)]
    assert runs.one(EVERYTHING, frozen.id).state_beneath == "running"
    for state, ti in (("frozen", held), ("success", ended)):
        found = task_instances.page(filters.TaskInstanceFilter(state=(state,)), EVERYTHING).rows
        assert [(row.id, row.state) for row in found] == [(ti.id, state)]
    both = filters.TaskInstanceFilter(state=("frozen", "success", "running"))
    assert task_instances.page(both, EVERYTHING).counts.total == 2
    assert task_instances.state_counts(EVERYTHING, [frozen.id]) == {
        frozen.id: {"frozen": 1, "success": 1}
    }


def test_a_row_that_is_not_there_is_not_found() -> None:
    with pytest.raises(errors.NotFound, match="run 4711"):
        runs.one(EVERYTHING, 4711)
    run = factories.make_run(filter_code="ghost_run")
    assert runs.one(EVERYTHING, run.id).is_filtered, "a filtered row is found too"
    with pytest.raises(errors.NotFound):
        runs.one(NOTHING, run.id)
    assert runs.by_key(EVERYTHING, run.flow_id, run.run_key).id == run.id


def test_the_newest_runs_of_each_flow_come_oldest_first() -> None:
    flow, other = factories.make_flow(), factories.make_flow()
    made = [factories.make_run(flow=flow) for _ in range(4)]
    factories.make_run(flow=flow, filter_code="ghost_run")
    found = runs.latest_of_flows(EVERYTHING, [flow.flow_id, other.flow_id], each=3)
    assert [row.id for row in found[flow.flow_id]] == [run.id for run in made[1:]]
    assert found[other.flow_id] == ()


def test_the_value_of_a_secret_is_not_read() -> None:
    for key, is_secret in (("open", False), ("secret", True)):
        Variable.objects.create(
            key=key, value={"v": 1}, is_secret=is_secret, updated_at=factories.at(0)
        )
    assert variables.one(EVERYTHING, "open").value == {"v": 1}
    assert variables.one(EVERYTHING, "secret").value is None


def test_slots_of_a_pool_are_counted_from_live_attempts() -> None:
    for state, held in (("running", None), ("issued", None), ("issued", 3), ("ended", None)):
        ti = factories.make_task_instance(state="queued", held_by=held)
        factories.make_attempt(ti=ti, state=state, pool_slots=2)
    pool = pools.one(EVERYTHING, "default")
    assert (pool.running_slots, pool.queued_slots) == (2, 2)
    assert pool.open_slots == pool.slots - 4


@pytest.mark.parametrize("flow_id", ["100%", "it's", "%s", str(2**62 + 1), "\\"])
def test_one_run_is_found_within_a_scope_of_any_names(flow_id: str) -> None:
    mine, other = (
        factories.make_run(flow=factories.make_flow(flow_id=one)) for one in (flow_id, "b")
    )
    scope = Scope(flow_ids=frozenset({flow_id}), sees_shared=False)
    for run, times in ((mine, 3), (other, 2)):
        for _ in range(times):
            if run is mine:
                assert runs.one(scope, run.id).flow_id == flow_id
            else:
                with pytest.raises(errors.NotFound):
                    runs.one(scope, run.id)
