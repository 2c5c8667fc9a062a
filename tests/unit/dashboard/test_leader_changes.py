"""Changes of leaders, told together where they are one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from dashboard.leader_changes import together
from scheduler_app.queries.take_overs import TakeOverRow

T0 = datetime(2026, 1, 31, 2, tzinfo=UTC)
OLD, NEW = UUID(int=1), UUID(int=2)


def taken(shard: int, seconds: float, **changes: Any) -> TakeOverRow:
    at = T0 + timedelta(seconds=seconds)
    values: dict[str, Any] = {
        "id": shard + 100,
        "shard": shard,
        "cause": "expired",
        "state": "ended",
        "old_holder": OLD,
        "old_hostname": "s-1",
        "old_pid": 1,
        "old_token": 1,
        "old_renewed_at": at,
        "old_expires_at": at,
        "holder": NEW,
        "holder_hostname": "s-2",
        "holder_pid": 2,
        "new_token": 2,
        "acquired_at": at,
        "gap_s": 0.5 + shard,
        "started_at": at,
        "ended_at": at,
        "ask_id": None,
        "asked": 0,
        "answered": 0,
        "counts": {"ghost": 1} if shard == 3 else {},
        **changes,
    }
    return TakeOverRow(**values)


def test_shards_that_change_together_are_one_change() -> None:
    rows = [taken(9, 0.1), taken(2, 0.1), taken(3, 0.0), taken(4, 0.0)]
    (change,) = together(rows)
    assert (change.named, change.old, change.new) == ("2-4, 9", "s-1:1", "s-2:2")
    assert (change.gap_s, change.ghosts, change.take_over) == (9.5, 1, 102)
    assert change.is_fail_over


def test_another_moment_cause_or_process_is_another_change() -> None:
    rows = [
        taken(1, 60),
        taken(2, 0),
        taken(3, 0, cause="released", old_holder=None, gap_s=None),
        taken(4, 0, holder=UUID(int=3)),
    ]
    changes = together(rows)
    assert [one.named for one in changes] == ["1", "2", "3", "4"]
    assert [one.is_fail_over for one in changes] == [True, True, False, True]
    assert (changes[2].old, changes[2].gap_s) == ("", None)
    assert together([]) == []
