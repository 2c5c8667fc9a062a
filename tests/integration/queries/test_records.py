"""Records of every noun: what the list says, and that it is read through indexes."""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from scheduler_app.models import Attempt, Flow, Record, Reviewed, TaskInstance
from scheduler_app.queries import lens, records
from scheduler_app.queries.filters import RecordFilter
from scheduler_app.queries.list_filter import Lens
from scheduler_app.queries.scope import EVERYTHING, Scope
from tests import factories
from tests.integration.queries.test_lens import everything, fill

pytestmark = pytest.mark.django_db


FILTERED = 20_000


def fill_tables() -> None:
    """So many filtered attempts and events that reading all of them for one page would show."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO attempt (id, kind, queue, pool, pool_slots, state, is_live, is_accepted,"
            "  outcome, publish_count, ended_at, filter_code, filtered_at, filter_detail)"
            " SELECT gen_random_uuid(), 'task', '', '', 0, 'ended', false, false, 'lost', 0, t,"
            "  'ghost_no_record', t, '{}'"
            " FROM generate_series(1, %s) n, LATERAL (SELECT now() - n * interval '1 s' AS t) m",
            [FILTERED],
        )
        cursor.execute(
            "INSERT INTO executor_event (kind, source, payload, received_at, verdict, verdict_code,"
            "  judged_at, filter_code, filtered_at, filter_detail)"
            " SELECT 'exit_failed', 'w', '{}', t, 'ghost', 'ghost_no_record', t, 'ghost_no_record', t,"
            "  '{}' FROM generate_series(1, %s) n, LATERAL (SELECT now() - n * interval '1 s' AS t) m",
            [FILTERED],
        )
        cursor.execute("ANALYZE attempt")
        cursor.execute("ANALYZE executor_event")


def plan_of(asked: RecordFilter) -> str:
    """How the newest page is read."""
    statement = lens.whole(records.NOUN, asked, EVERYTHING)
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {statement.sql} LIMIT 51", statement.parameters)
        return "\n".join(row[0] for row in cursor.fetchall())


def at_once(asked: RecordFilter) -> list[records.RecordRow]:
    """All rows as an export has them."""
    statement = lens.whole(records.NOUN, asked, EVERYTHING)
    with connection.cursor() as cursor:
        cursor.execute(statement.sql, statement.parameters)
        return [records.NOUN.row_of(values) for values in statement.values(cursor.fetchall())]


def test_the_newest_filtered_records_come_from_the_index_of_each_table() -> None:
    fill_tables()
    plan = plan_of(RecordFilter(filtered=Lens.ONLY))
    assert "Merge Append" in plan, plan
    for table in ("attempt", "executor_event"):
        assert f"Index Scan using {table}_filtered_at" in plan, plan


def test_one_noun_reads_its_own_table_alone() -> None:
    fill_tables()
    plan = plan_of(RecordFilter(filtered=Lens.ONLY, noun=("attempt",)))
    assert "Index Scan using attempt_filtered_at" in plan, plan
    assert "executor_event" not in plan, plan


def test_a_possible_double_write_is_counted_once_for_each_execution() -> None:
    ran = factories.make_attempt(
        state="ended", outcome="lost", filter_code="lost_worker", try_number=1
    )
    never = factories.make_attempt(
        state="ended", outcome="lost", filter_code="lost_worker", try_number=2
    )
    Attempt.objects.filter(pk=never.pk).update(started_at=None)
    factories.make_attempt(
        state="ended", outcome="failed", filter_code="superseded_by_retry", try_number=3
    )
    for kind in ("exit_success", "late_report"):
        factories.make_event(
            attempt=ran,
            kind=kind,
            verdict="ignored",
            verdict_code="stale_superseded",
            filter_code="stale_superseded",
        )
    current = factories.make_attempt(state="ended", outcome="failed")
    for kind in ("exit_success", "late_report"):
        factories.make_event(
            attempt=current,
            kind=kind,
            verdict="ignored",
            verdict_code="late_after_terminal",
            filter_code="late_after_terminal",
        )
    found = records.page(RecordFilter(possible=("double_write",), filtered=Lens.ONLY), EVERYTHING)
    assert {(row.noun, row.kind) for row in found.rows} == {
        ("attempt", "task"),
        ("executor_event", "late_report"),
    }
    assert found.counts.total == 2


def test_the_sources_are_those_of_the_window_unless_it_is_said() -> None:
    for host in ("w-1", "w-1", "w-2"):
        factories.make_ghost_attempt(hostname=host)
    Attempt.objects.filter(hostname="w-1").update(filtered_at=timezone.now())
    since = timezone.now() - timedelta(hours=24)
    recent = records.summary(RecordFilter(), EVERYTHING, since=since)
    assert [(one.name, one.number) for one in recent.sources["hostname"]] == [("w-1", 2)]
    assert sum(sum(codes.values()) for _, codes in recent.hours) == 2
    whole = records.summary(RecordFilter(at_gte=factories.at(0)), EVERYTHING, since=since)
    assert {one.name for one in whole.sources["hostname"]} == {"w-1", "w-2"}


def test_what_is_asked_again_of_a_flow_is_planned_once_a_connection() -> None:
    fill()
    flows = [*Flow.objects.order_by("flow_id").values_list("flow_id", flat=True)]
    since = timezone.now() - timedelta(days=3650)

    def plans() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_prepared_statements WHERE statement ~ 'record'")
            return int(cursor.fetchone()[0])

    def ask(asked: RecordFilter) -> tuple[lens.Page[records.RecordRow], records.Summary]:
        page = records.page(asked, EVERYTHING)
        return page, records.summary(asked, EVERYTHING, since=since)

    of_flow = RecordFilter(flow_id=(flows[0], "100%'"), limit=2, filtered=Lens.ONLY)
    before = plans()
    first = ask(of_flow)
    assert plans() == before, "what is asked once is not kept"
    assert [ask(of_flow), ask(of_flow)] == [first, first]
    assert plans() == before + 2  # the page with its counts, and the summary
    Attempt.objects.filter(run__flow_id=flows[0], filter_code=None).update(
        filter_code="superseded_by_retry",
        filtered_at=timezone.now(),
        filter_detail={},
    )
    page, summary = ask(of_flow)
    assert (page, summary) != first
    assert page.counts == lens.counts(records.NOUN, of_flow, EVERYTHING)
    # No plan for each page behind the first, and none of one table after the other for ever.
    behind = of_flow.evolve(cursor=page.next_cursor)
    of_host = RecordFilter(hostname=("w-1",))
    before = plans()
    for asked in (behind, behind, behind, of_host, of_host, of_host):
        ask(asked)
    assert plans() == before
    for number in range(lens.PLANS_KEPT):
        for _ in range(2):
            records.page(RecordFilter(flow_id=(f"none_{number}",)), EVERYTHING)
    assert 1 < plans() <= lens.PLANS_KEPT + 1  # the last one to go goes with the next statement


ORDERS = tuple(sign + order for order in RecordFilter.ORDERS for sign in ("", "-"))


def test_records_of_flows_are_those_of_their_runs_and_the_flows_themselves() -> None:
    """Read in parts; the rows, their order, pages and counts are those of the whole list, narrowed by hand."""
    fill()
    flows = [*Flow.objects.order_by("flow_id").values_list("flow_id", flat=True)]
    removed = Flow.objects.filter(removed_at__isnull=False).values_list("flow_id", flat=True)[0]
    whole = {
        (view, order): everything(records.NOUN, RecordFilter(filtered=view, order=order, limit=500))
        for view in Lens
        for order in ("", *ORDERS)
    }
    asides = {row.filter_code for row in whole[Lens.ONLY, ""]}
    assert {"flow_removed", "superseded_by_retry", "ghost_no_record"} <= asides
    for flow_ids in (tuple(flows[:1]), (removed,), tuple(flows[1:3]), (removed, "none"), ("none",)):
        of_flows = [row for row in whole[Lens.ALL, ""] if row.flow_id in flow_ids]
        for narrowed, is_kept in (
            ({}, lambda _: True),
            ({"noun": ("attempt", "flow")}, lambda row: row.noun in {"attempt", "flow"}),
            ({"task_id": ("a",)}, lambda row: row.task_id == "a"),
            ({"at_gte": factories.at(4)}, lambda row: row.at and row.at >= factories.at(4)),
        ):
            asked = RecordFilter(flow_id=flow_ids, limit=9, **narrowed)
            kept = [row for row in of_flows if is_kept(row)]
            codes = Counter(row.filter_code for row in kept if row.is_filtered)
            for (view, order), every in whole.items():
                if order and narrowed:
                    continue  # each order once is enough
                shown = everything(records.NOUN, asked.evolve(filtered=view, order=order))
                wanted = [row for row in every if row.flow_id in flow_ids and is_kept(row)]
                assert shown == wanted, (asked, view, order)
                assert at_once(asked.evolve(filtered=view, order=order)) == wanted
            counts = lens.counts(records.NOUN, asked, EVERYTHING)
            assert counts.by_reason == codes
            assert counts.total == len(kept)
            assert counts == lens.page(records.NOUN, asked, EVERYTHING).counts
        why = RecordFilter(flow_id=flow_ids, filtered=Lens.ALL, why=("superseded_by_retry",))
        assert {row.key for row in everything(records.NOUN, why)} == {
            row.key for row in of_flows if row.filter_code in (None, "superseded_by_retry")
        }


def test_records_of_attempts_and_kinds_are_those_of_the_whole_list() -> None:
    fill()
    factories.make_event(attempt_id=uuid.uuid4())  # of no attempt that there is
    whole = {
        view: everything(records.NOUN, RecordFilter(filtered=view, limit=500)) for view in Lens
    }
    attempt_ids = {row.attempt_id for row in whole[Lens.ALL]} - {None}
    assert {row.noun for row in whole[Lens.ALL] if row.attempt_id} == {
        *("attempt", "task_instance", "executor_event")
    }
    some = sorted(attempt_ids)[:3]
    kinds = {row.kind for row in whole[Lens.ALL]} - {None}
    assert len(kinds) > 4
    for view, rows in whole.items():
        for ids in (*((one,) for one in attempt_ids), tuple(some), (uuid.uuid4(),)):
            asked = RecordFilter(filtered=view, attempt_id=ids, limit=2)
            kept = [row for row in rows if row.attempt_id in ids]
            assert everything(records.NOUN, asked) == kept, asked
            counts = lens.counts(records.NOUN, asked, EVERYTHING)
            assert counts.total == sum(row.attempt_id in ids for row in whole[Lens.ALL])
        for wanted in (*((one,) for one in kinds), ("task", "manual"), ("none",)):
            asked = RecordFilter(filtered=view, kind=wanted, limit=7)
            kept = [row for row in rows if row.kind in wanted]
            assert everything(records.NOUN, asked) == kept, asked


def test_the_halves_of_a_list_in_parts_are_counted_up_to_the_same_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill()
    monkeypatch.setattr(lens, "COUNT_MAX", 3)
    flow_ids = tuple(Flow.objects.values_list("flow_id", flat=True))
    sql, parameters = lens.counting(RecordFilter(flow_id=flow_ids), Record.objects.all())
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        ((shown, by_reason),) = cursor.fetchall()
    assert shown == 4
    assert sum(json.loads(by_reason).values()) == 4
    counts = lens.counts_of((shown, by_reason), is_exact=False)
    assert (counts.shown, counts.filtered, counts.exact) == (3, 3, False)


@pytest.mark.parametrize(
    "narrowed",
    [
        {},
        {"flow_id": 1},
        {"flow_id": 1, "at_gte": factories.at(-1)},
        {"flow_id": 1, "at_gte": factories.at(-7)},
        {"run": 1},
        {"hostname": ("host",)},
    ],
)
def test_a_summary_tells_of_what_the_list_keeps(narrowed: dict[str, Any]) -> None:
    fill()
    Attempt.objects.filter(filter_code__isnull=False).update(hostname="host")
    if "flow_id" in narrowed:
        removed = Flow.objects.get(removed_at__isnull=False)
        narrowed = {**narrowed, "flow_id": (removed.flow_id, "none")}
    if "run" in narrowed:
        narrowed = {"run": (Attempt.objects.filter(run__isnull=False).values_list("run")[0][0],)}
    asked = RecordFilter(filtered=Lens.ONLY, limit=500, **narrowed)
    rows = records.page(asked, EVERYTHING).rows
    assert rows
    found = records.summary(asked, EVERYTHING, since=factories.at(-1))
    told: Counter[str] = Counter()
    for _, codes in found.hours:
        told.update(codes)
    assert told == Counter(row.filter_code for row in rows)
    for name in ("noun", "hostname", "shard", "flow_id"):
        numbers = Counter(getattr(row, name) for row in rows)
        numbers.pop(None, None)
        sources = found.sources[name]
        assert {one.name: one.number for one in sources}.items() <= {
            str(value): number for value, number in numbers.items()
        }.items()
        assert len(sources) == min(len(numbers), records.TOP)


def test_records_that_a_person_has_looked_at_are_those_of_the_marks_whatever_their_noun() -> None:
    fill()
    factories.make_job(ended_at=factories.at(5))
    TaskInstance.objects.filter(pk=TaskInstance.objects.order_by("id")[0].pk).update(
        filter_code="ghost_no_record", filtered_at=factories.at(8), filter_detail={}
    )
    aside = everything(records.NOUN, RecordFilter(filtered=Lens.ONLY))
    assert {row.noun for row in aside} >= {
        *("run", "task_instance", "attempt", "executor_event", "flow", "job")
    }
    marked = {row.key for row in aside[::2]} | {row.key for row in aside if row.noun == "job"}
    for key in (*sorted(marked), "ghost:1", "flow:a:b"):
        Reviewed.objects.create(key=key, actor="ana", at=factories.at(9))
    for view in Lens:
        for narrowed in ({}, {"noun": ("attempt", "flow")}, {"hostname": ("w-1",)}):
            asked = RecordFilter(filtered=view, limit=3, **narrowed)
            every = everything(records.NOUN, asked)
            for said, is_kept in (("yes", True), ("no", False)):
                of_marks = asked.evolve(reviewed=(said,))
                wanted = [row for row in every if (row.key in marked) is is_kept]
                assert everything(records.NOUN, of_marks) == wanted
                assert at_once(of_marks) == wanted
        asked = RecordFilter(reviewed=("yes",))
        assert lens.counts(records.NOUN, asked, EVERYTHING).filtered == len(marked)


@pytest.mark.parametrize("narrowed", [{"task_id": ("a",)}, {"ti": 1}, {"shard": (1,)}])
def test_filtered_records_of_a_task_are_those_of_the_whole_list(narrowed: dict[str, Any]) -> None:
    fill()
    if "ti" in narrowed:
        narrowed = {"ti": tuple(Attempt.objects.values_list("ti_id", flat=True)[:3])}
    every = everything(records.NOUN, RecordFilter(filtered=Lens.ONLY))
    ((name, values),) = narrowed.items()
    column = "ti" if name == "ti" else name
    wanted = [row for row in every if getattr(row, column) in values]
    ways: list[dict[str, Any]] = [{}, {"noun": ("attempt",)}, {"at_gte": factories.at(2)}]
    for more in ways:
        asked = RecordFilter(filtered=Lens.ONLY, limit=2, **narrowed, **more)
        kept = [
            row
            for row in wanted
            if row.noun in more.get("noun", (row.noun,))
            and (not more.get("at_gte") or (row.at and row.at >= more["at_gte"]))
        ]
        assert everything(records.NOUN, asked) == kept
        assert lens.counts(records.NOUN, asked, EVERYTHING).filtered == len(kept)


def test_a_summary_of_one_flow_tells_of_its_runs_and_of_itself() -> None:
    fill()
    Attempt.objects.filter(filter_code__isnull=False).update(hostname="host")
    for flow in Flow.objects.all():
        asked = RecordFilter(filtered=Lens.ONLY, limit=500, flow_id=(flow.flow_id,))
        rows = records.page(asked, EVERYTHING).rows
        for since in (factories.at(-1), factories.at(4)):
            found = records.summary(asked, EVERYTHING, since=since)
            late = [row for row in rows if row.at and row.at >= since]
            assert sum(sum(codes.values()) for _, codes in found.hours) == len(late)
            assert [one.name for one in found.sources["flow_id"]] == [flow.flow_id] * bool(late)
            assert sum(one.number for one in found.sources["noun"]) == len(late)


def test_of_the_filtered_records_of_a_flow_those_of_the_page_alone_are_read() -> None:
    fill()
    of_flow = RecordFilter(filtered=Lens.ONLY, limit=2, flow_id=("none_such",))
    with CaptureQueriesContext(connection) as captured:
        records.page(of_flow, EVERYTHING)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("SET LOCAL enable_bitmapscan = off")
        cursor.execute(f"EXPLAIN {captured[-1]['sql']}")
        plan = "\n".join(row[0] for row in cursor.fetchall())
    for table in ("attempt", "task_instance", "executor_event", "run_attempt", "run"):
        found = rf"Index Scan using \w+ on {table} .*\n +Index Cond: \(id = ANY"
        assert re.search(found, plan), plan


def test_a_reader_of_one_flow_sees_its_records_and_no_ghosts_without_a_flow() -> None:
    ours = factories.make_attempt(state="ended", filter_code="superseded_by_retry")
    factories.make_attempt(state="ended", filter_code="superseded_by_retry")
    factories.make_ghost_attempt()
    assert ours.run is not None
    scope = Scope(flow_ids=frozenset({ours.run.flow_id}), sees_shared=False)
    found = records.page(RecordFilter(filtered=Lens.ONLY), scope)
    assert [row.record_id for row in found.rows] == [str(ours.id)]
    assert {row.noun for row in records.page(RecordFilter(filtered=Lens.ALL), scope).rows} == {
        "attempt",
        "run",
        "run_attempt",
        "task_instance",
        "flow",
    }
