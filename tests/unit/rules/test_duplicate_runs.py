"""Which of several runs of one date is kept."""

from __future__ import annotations

from typing import Any

from scheduler_app.rules.duplicate_runs import Candidate, choose


def run(number: int, **changed: Any) -> Candidate:
    return Candidate(
        **{
            "id": number,
            "run_id": f"r{number}",
            "state": "running",
            "actor": "scheduler",
            "has_run_attempt": True,
            "accepted_results": 0,
            **changed,
        }
    )


def told(*runs: Candidate) -> list[tuple[int, str, int]]:
    return [(each.run.id, each.code, each.kept.id) for each in choose(runs)]


def test_a_run_alone_is_kept() -> None:
    assert told(run(1)) == []


def test_the_oldest_is_kept_where_nothing_else_tells_them_apart() -> None:
    assert told(run(2), run(1), run(3)) == [
        (2, "duplicate_logical_date", 1),
        (3, "duplicate_logical_date", 1),
    ]


def test_the_one_that_ended_well_is_kept_then_the_one_that_did_more() -> None:
    assert told(run(1, accepted_results=9), run(2, state="success"))[0][0] == 1
    assert told(run(1), run(2, accepted_results=3))[0][0] == 1


def test_an_imported_run_gives_way_even_if_it_ended_well() -> None:
    imported = run(1, actor="import of backup.dump", state="success", accepted_results=4)
    assert told(imported, run(2)) == [(1, "imported_duplicate", 2)]


def test_a_run_that_nobody_created_gives_way() -> None:
    assert told(run(1, has_run_attempt=False), run(2)) == [(1, "ghost_run", 2)]
