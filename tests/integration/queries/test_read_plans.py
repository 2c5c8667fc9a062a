"""Lists over a long history touch a bounded part of it: no sort of the whole, no look at each row."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pytest
from django.db import connection
from django.db.models import Q
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from scheduler_app.models import Attempt, TaskInstance
from scheduler_app.queries import (
    attempts,
    audit,
    by_offset,
    executor_events,
    lens,
    newest,
    records,
    run_attempts,
    runs,
    task_instances,
)
from scheduler_app.queries.filters import (
    AttemptFilter,
    AuditFilter,
    EventFilter,
    RecordFilter,
    RunAttemptFilter,
    RunFilter,
    TaskInstanceFilter,
)
from scheduler_app.queries.list_filter import Lens
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.rules.errors import InvalidInput
from tests import history
from tests.world import World, chain

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from scheduler_app.queries.list_filter import ListFilter

INSTANCES: Final = 60_000
VISITED_MAX: Final = lens.COUNT_MAX + 2_000  # rows of one scan: what is counted, and a page
NOTHING_VISITED_MAX: Final = (
    4_000  # the filtered rows, and what an index over times may be wrong about
)
REFUSED_ABOVE: Final = 20_000  # rows in an order that no index has
SORTED_MAX: Final = 3_500  # all that was set aside, which may be put in the order of its runs
NOW: Final = timezone.now()
# Far from both ends of the history.
INTERVAL: Final = (NOW - timedelta(minutes=104), NOW - timedelta(minutes=100))

LISTS: Final[dict[str, tuple[Any, ListFilter]]] = {
    "task instances": (task_instances, TaskInstanceFilter(limit=100)),
    "failed task instances": (task_instances, TaskInstanceFilter(limit=100, state=("failed",))),
    "running task instances": (task_instances, TaskInstanceFilter(limit=100, state=("running",))),
    "newest started": (task_instances, TaskInstanceFilter(limit=100, order="-started_at")),
    "newest ended": (task_instances, TaskInstanceFilter(limit=100, order="-ended_at")),
    "oldest ended": (task_instances, TaskInstanceFilter(limit=100, order="ended_at")),
    "started lately": (
        task_instances,
        TaskInstanceFilter(limit=100, started_at_gte=NOW - timedelta(minutes=12)),
    ),
    **{
        f"an interval by {order}": (
            task_instances,
            TaskInstanceFilter(
                limit=100, order=order, started_at_gte=INTERVAL[0], started_at_lte=INTERVAL[1]
            ),
        )
        for order in ("id", "-id")
    },
    "an interval of attempts": (
        attempts,
        AttemptFilter(limit=100, issued_at_gte=INTERVAL[0], issued_at_lte=INTERVAL[1]),
    ),
    "attempts": (attempts, AttemptFilter(limit=100)),
    "failed attempts": (attempts, AttemptFilter(limit=100, outcome=("failed",))),
    "newest ended attempts": (attempts, AttemptFilter(limit=100, order="-ended_at")),
    "filtered attempts": (attempts, AttemptFilter(limit=100, filtered=Lens.ONLY)),
    # Of all flows that may have lost ones: of a single one, it may be that it has none.
    "filtered attempts of flows": (
        attempts,
        AttemptFilter(limit=100, filtered=Lens.ONLY, flow_id=("history_7", "history_8")),
    ),
    "attempts that were replaced": (
        attempts,
        AttemptFilter(limit=100, why=("superseded_by_redispatch",), filtered=Lens.ONLY),
    ),
    "runs": (runs, RunFilter(limit=100)),
    "newest started runs": (runs, RunFilter(limit=100, order="-started_at")),
    "run attempts": (run_attempts, RunAttemptFilter(limit=100)),
    "events": (executor_events, EventFilter(limit=100)),
    "newest events": (executor_events, EventFilter(limit=100, order="-received_at")),
    "attempts by fence": (attempts, AttemptFilter(limit=100, order="-fence")),
    "filtered attempts by time": (
        attempts,
        AttemptFilter(limit=100, filtered=Lens.ONLY, order="-issued_at"),
    ),
    "runs by logical date": (runs, RunFilter(limit=100, order="-logical_date")),
    "run attempts by time": (run_attempts, RunAttemptFilter(limit=100, order="-started_at")),
    "failed runs by time": (runs, RunFilter(limit=5, state=("failed",), order="-ended_at")),
    "audit": (audit, AuditFilter(limit=100)),
    "audit by time": (audit, AuditFilter(limit=100, order="at")),
    "filtered records": (records, RecordFilter(limit=100, filtered=Lens.ONLY)),
    "current records": (records, RecordFilter(limit=100)),
    "records of a flow": (records, RecordFilter(limit=50, flow_id=("history_7",))),
    "records of a flow of both kinds": (
        records,
        RecordFilter(limit=50, filtered=Lens.ALL, flow_id=("history_7",)),
    ),
    # Of two: of one of them, it may be that none of its attempts was lost.
    "filtered records of flows": (
        records,
        RecordFilter(limit=50, filtered=Lens.ONLY, flow_id=("history_7", "history_8")),
    ),
    "records of both kinds": (records, RecordFilter(limit=100, filtered=Lens.ALL)),
    "current task instances as records": (
        records,
        RecordFilter(limit=100, noun=("task_instance",)),
    ),
}
# Lists that have no row: nobody may look for one everywhere.
OF_NOTHING: Final[dict[str, tuple[Any, ListFilter]]] = {
    "task instances of a task": (task_instances, TaskInstanceFilter(task_id=("none_such",))),
    "task instances of a pool": (task_instances, TaskInstanceFilter(pool=("none_such",))),
    "task instances of a queue": (task_instances, TaskInstanceFilter(queue=("none_such",))),
    "task instances of a shard": (task_instances, TaskInstanceFilter(shard=(900,))),
    "task instances with a label": (task_instances, TaskInstanceFilter(map_label=("none",))),
    "task instances of an index": (task_instances, TaskInstanceFilter(map_index=(900,))),
    "attempts of a task": (attempts, AttemptFilter(task_id=("none_such",))),
    "attempts of a host": (attempts, AttemptFilter(hostname=("none_such",))),
    "attempts of a worker": (attempts, AttemptFilter(worker_job_id=(UUID(int=7),))),
    "attempts of a try": (attempts, AttemptFilter(try_number=(900,))),
    "running attempts": (attempts, AttemptFilter(state=("running",))),
    "callbacks": (attempts, AttemptFilter(kind=("callback",))),
    "callbacks about failures": (attempts, AttemptFilter(callback_on=("on_failure",))),
    "frozen runs": (runs, RunFilter(state=("frozen",))),
    "records of an attempt": (records, RecordFilter(attempt_id=(UUID(int=7),))),
    "records of both kinds of an attempt": (
        records,
        RecordFilter(filtered=Lens.ALL, attempt_id=(UUID(int=7),)),
    ),
    "filtered records of a run": (
        records,
        RecordFilter(filtered=Lens.ONLY, run_id=("none_such",)),
    ),
    **{
        f"records of a flow, filtered={view.value}": (
            records,
            RecordFilter(filtered=view, flow_id=("none_such",)),
        )
        for view in Lens
    },
}
# The same of what was set aside: looked for near the end first, and then in the index over all of it.
NOTHING_ASIDE: Final[dict[str, tuple[Any, ListFilter]]] = {
    **{
        f"{name}, filtered={view.value}": (
            module,
            asked.evolve(filtered=view),
        )
        for view in (Lens.ALL, Lens.ONLY)
        for name, module, asked in (
            ("attempts of a task", attempts, AttemptFilter(task_id=("none_such",))),
            ("deferred attempts", attempts, AttemptFilter(outcome=("deferred",))),
            ("skipped ones", task_instances, TaskInstanceFilter(state=("skipped",))),
            ("task instances of a task", task_instances, TaskInstanceFilter(task_id=("none",))),
            ("events of a verdict", executor_events, EventFilter(verdict=("ghost",))),
        )
    },
    "attempts of a reason": (attempts, AttemptFilter(why=("ghost_run",), filtered=Lens.ONLY)),
}
TOO_MANY: Final[dict[str, tuple[Any, ListFilter]]] = {
    "task instances by task": (task_instances, TaskInstanceFilter(order="task_id")),
    "task instances by priority": (task_instances, TaskInstanceFilter(order="-priority")),
    "attempts by heartbeat": (attempts, AttemptFilter(order="-heartbeat_at")),
    "records by key": (records, RecordFilter(order="key")),
    "current records by when they were set aside": (records, RecordFilter(order="-filtered_at")),
}


@pytest.fixture
def long_history(world: World, raw: psycopg.Connection[Any]) -> None:
    """A history that is several times as long as a list counts."""
    # Tests before this one left free pages: rows that are written into those are in no order of time.
    raw.execute("TRUNCATE run, executor_event, audit CASCADE")
    flow = world.flow("f", chain("a"))
    assert flow.current_version_id is not None
    history.write(raw, version_id=flow.current_version_id, instances=INSTANCES)


@pytest.mark.usefixtures("long_history")
def test_lists_touch_a_bounded_part_of_the_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """One test for all lists, since the history takes seconds to write."""
    monkeypatch.setattr(lens, "SORTED_MAX", REFUSED_ABOVE)  # less than is written here
    faults = []
    for name, (module, asked) in LISTS.items():
        with CaptureQueriesContext(connection) as captured:
            page = module.page(asked, EVERYTHING)
        if name != "running task instances":
            assert len(page.rows) == min(asked.limit, 100), name
        faults += [f"{name}: {fault}" for query in captured for fault in _faults(query["sql"])]
    for name, (module, asked) in OF_NOTHING.items():
        with CaptureQueriesContext(connection) as captured:
            assert module.page(asked, EVERYTHING).rows == (), name
        faults += [
            f"{name}, of which there are none: {fault}"
            for query in captured
            for fault in _faults(query["sql"], at_most=NOTHING_VISITED_MAX)
        ]
    for name, (module, asked) in NOTHING_ASIDE.items():
        with CaptureQueriesContext(connection) as captured:
            assert module.page(asked, EVERYTHING).rows == (), name
        faults += [f"{name}: {fault}" for query in captured for fault in _faults(query["sql"])]
    for name, (module, asked) in TOO_MANY.items():
        with (
            CaptureQueriesContext(connection) as captured,
            pytest.raises(InvalidInput, match="order"),
        ):
            module.page(asked, EVERYTHING)
        faults += [
            f"{name}: {fault}"
            for query in captured
            for fault in _faults(query["sql"], at_most=REFUSED_ABOVE + 2_000)
        ]
    with CaptureQueriesContext(connection) as captured:
        summary = records.summary(RecordFilter(), EVERYTHING, since=NOW - timedelta(hours=1))
        assert summary.hours
        attempt = Attempt.objects.order_by("id")[0]
        assert records.one(EVERYTHING, f"attempt:{attempt.pk}").attempt_id == attempt.pk
        of_flows = RecordFilter(flow_id=("history_7", "history_8"))
        assert records.summary(of_flows, EVERYTHING, since=NOW - timedelta(hours=1)).hours
        with connection.cursor() as cursor:
            for view in Lens:
                of_none = RecordFilter(flow_id=("none_such",), filtered=view)
                exported = lens.whole(records.NOUN, of_none, EVERYTHING)
                cursor.execute(exported.sql, exported.parameters)
                assert cursor.fetchall() == []
    faults += [f"records: {fault}" for query in captured for fault in _faults(query["sql"])]
    with CaptureQueriesContext(connection) as captured:
        within = Q(started_at__gte=INTERVAL[0], started_at__lt=INTERVAL[1])
        for is_descending in (True, False):
            interval = by_offset.page(
                task_instances.NOUN,
                EVERYTHING,
                where=within,
                order=(("id", is_descending),),
                limit=100,
            )
            assert len(interval.rows) == 100
        for order in ((("started_at", True),), ()):
            found = by_offset.page(
                task_instances.NOUN, EVERYTHING, where=Q(), order=order, limit=100, offset=100
            )
            assert found.total == by_offset.COUNT_MAX
    faults += [f"by offset: {fault}" for query in captured for fault in _faults(query["sql"])]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("order", ["started_at", "-started_at", "ended_at", "-ended_at"])
def test_pages_in_the_order_of_a_time_lead_through_every_row_once(
    world: World, raw: psycopg.Connection[Any], order: str
) -> None:
    """Times that are the other way round than the rows, the same, and missing."""
    flow = world.flow("f", chain("a"))
    assert flow.current_version_id is not None
    history.write(raw, version_id=flow.current_version_id, instances=200)
    raw.execute(
        "UPDATE task_instance SET started_at = clock_timestamp() - id * interval '1 s',"
        " ended_at = CASE WHEN id % 3 > 0 THEN date_trunc('hour', ended_at) END"
        " WHERE id % 2 = 0"
    )
    seen: list[int] = []
    cursor = ""
    while True:
        asked = TaskInstanceFilter(limit=7, order=order, cursor=cursor)
        page = task_instances.page(asked, EVERYTHING)
        seen += [row.id for row in page.rows]
        cursor = page.next_cursor
        if not cursor:
            break
    column, is_descending = order.removeprefix("-"), order.startswith("-")
    rows = [(getattr(row, column), row.pk) for row in TaskInstance.objects.all()]
    timed = sorted((row for row in rows if row[0] is not None), reverse=is_descending)
    untimed = sorted((row[1] for row in rows if row[0] is None), reverse=is_descending)
    assert seen == [pk for _, pk in timed] + untimed
    one_page = by_offset.page(
        task_instances.NOUN, EVERYTHING, where=Q(), order=((column, is_descending),), limit=50
    )
    assert [getattr(row, column) for row in one_page.rows] == [at for at, _ in timed[:50]]


@pytest.mark.parametrize("order", ["id", "-id"])
def test_pages_of_an_interval_lead_through_every_row_of_it_once(
    world: World, raw: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """Wherever it lies: among the first rows looked at, beyond them, and across."""
    monkeypatch.setattr(newest, "NEAR_ROWS", 20)
    flow = world.flow("f", chain("a"))
    assert flow.current_version_id is not None
    history.write(raw, version_id=flow.current_version_id, instances=200)
    raw.execute(
        "UPDATE task_instance SET started_at = started_at - interval '3 s' WHERE id % 5 = 0"
    )
    rows = sorted(TaskInstance.objects.values_list("started_at", "id"))
    for first, last in ((0, 30), (90, 99), (60, 199), (0, 199)):
        begin, end = rows[first][0], rows[last][0]
        assert begin is not None
        assert end is not None
        wanted = sorted(pk for at, pk in rows if at is not None and begin <= at <= end)
        if order == "-id":
            wanted.reverse()
        seen: list[int] = []
        cursor = ""
        while not seen or cursor:
            asked = TaskInstanceFilter(
                limit=7, order=order, cursor=cursor, started_at_gte=begin, started_at_lte=end
            )
            page = task_instances.page(asked, EVERYTHING)
            seen += [row.id for row in page.rows]
            cursor = page.next_cursor
        assert seen == wanted
        by = ((order.removeprefix("-"), order == "-id"),)
        within = Q(started_at__gte=begin, started_at__lte=end)
        for offset in (0, 3):
            part = by_offset.page(
                task_instances.NOUN, EVERYTHING, where=within, order=by, limit=7, offset=offset
            )
            assert [row.id for row in part.rows] == wanted[offset : offset + 7]
            assert part.total == len(wanted)


def _faults(statement: str, *, at_most: int = VISITED_MAX) -> list[str]:
    """What the statement does too much of."""
    if not statement.startswith("SELECT"):
        return []
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}")
        (found,) = cursor.fetchone() or ("[]",)
    plans = json.loads(found) if isinstance(found, str) else found
    return [fault for plan in plans for fault in _faults_of(plan["Plan"], at_most)]


def _faults_of(node: dict[str, Any], at_most: int) -> Iterator[str]:
    kind, loops = node["Node Type"], node["Actual Loops"]
    children = node.get("Plans", [])
    if "Scan" in kind:
        removed = (node.get(f"Rows Removed by {by}", 0) for by in ("Filter", "Index Recheck"))
        visited = loops * (node["Actual Rows"] + sum(removed))
        if visited > at_most and kind != "Bitmap Index Scan":  # that one tells of pages
            yield f"{kind} of {node.get('Relation Name')} visits {visited:,} rows"
    if "Sort" in kind and children:
        rows = children[0]["Actual Rows"] * loops
        if rows > SORTED_MAX:
            yield f"{kind} of {rows:,} rows by {node.get('Sort Key')}"
    for child in children:
        yield from _faults_of(child, at_most)
