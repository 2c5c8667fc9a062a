"""Records of every noun: what the list says, and that it is read through indexes."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from scheduler_app.models import Attempt
from scheduler_app.queries import lens, records
from scheduler_app.queries.filters import RecordFilter
from scheduler_app.queries.list_filter import Lens
from scheduler_app.queries.scope import EVERYTHING, Scope
from tests import factories

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
    statement = lens.compiled(lens.whole(records.NOUN, asked, EVERYTHING)[:51])
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {statement.sql}", statement.parameters)
        return "\n".join(row[0] for row in cursor.fetchall())


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
