"""A worker's children: what each has in its hands, and what lies behind it."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from scheduler_app.worker.pool import FRAME_BYTES, Pool, PoolChild
from tests.unit.worker.children import Stage, delivery, end, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Table:
    """A pool with its children, heard whenever a test waits."""

    def __init__(self, stage: Stage, size: int) -> None:
        self.stage = stage
        self.children: list[PoolChild] = []
        self.over: list[tuple[str, bool, str]] = []
        self.unread: list[str] = []
        self.pool = Pool(
            size,
            on_born=self.children.append,
            on_gone=lambda child: None,
            on_forked=lambda: None,
            on_over=self._over,
            on_unread=self.unread.append,
        )
        self.pool.fill()

    def _over(self, attempt_id: str, *, is_well: bool, following: str) -> None:
        self.over.append((attempt_id, is_well, following))

    def hear(self) -> None:
        """What the children have said is heard."""
        for child in self.children:
            self.pool.hear(child)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path, monkeypatch)


@pytest.fixture
def one(stage: Stage) -> Iterator[Table]:
    """A pool of one child."""
    table = Table(stage, 1)
    yield table
    stage.let_end()
    table.pool.dismiss()
    until(table.pool.is_empty, turn=table.pool.bury)


def test_a_child_goes_on_with_what_lies_behind_before_its_parent_hears(one: Table) -> None:
    first, second = delivery(), delivery()
    one.pool.execute(first)
    assert one.pool.lay_behind(second)
    one.stage.let_end(first)
    until(lambda: one.stage.begun() == [first[0], second[0]])
    assert one.over == []
    until(lambda: bool(one.over), turn=one.hear)
    assert one.over == [(first[0], True, second[0])]
    assert one.pool.room() == 0, "it is at the second"
    assert one.stage.observer.told == [
        ("accepted", first[0]),
        ("expects", second[0]),
        ("returned", first[0]),
        ("accepted", second[0]),
    ]


def test_one_lies_behind_each_child_that_has_something(one: Table) -> None:
    assert not one.pool.lay_behind(delivery()), "its child has nothing to do"
    one.pool.execute(delivery())
    assert one.pool.lay_behind(delivery())
    assert not one.pool.lay_behind(delivery())


def test_what_lies_behind_a_slow_one_is_taken_back(one: Table) -> None:
    first, second = delivery(), delivery()
    one.pool.execute(first)
    until(lambda: one.stage.begun() == [first[0]])
    one.pool.lay_behind(second)
    assert one.pool.take_back(second[0])
    assert not one.pool.take_back(second[0]), "once"
    one.stage.let_end(first)
    until(lambda: bool(one.over), turn=one.hear)
    assert one.over == [(first[0], True, "")]
    assert (one.pool.room(), one.stage.begun()) == (1, [first[0]])
    assert one.stage.observer.told[-2:] == [("expects no more", ""), ("returned", first[0])]


def test_what_was_not_even_begun_stays_when_what_lies_behind_it_is_taken_back(one: Table) -> None:
    first, second, third = delivery(), delivery(), delivery()
    (child,) = one.children
    os.kill(child.pid, signal.SIGSTOP)
    one.pool.execute(first)
    one.pool.lay_behind(second)
    assert one.pool.take_back(second[0])
    assert one.pool.lay_behind(third)
    os.kill(child.pid, signal.SIGCONT)
    one.stage.let_end()
    until(lambda: len(one.over) == 2, turn=one.hear)
    assert one.stage.begun() == [first[0], third[0]]
    assert one.over == [(first[0], True, third[0]), (third[0], True, "")]


def test_what_a_child_has_begun_is_not_taken_back(one: Table) -> None:
    first, second = delivery(), delivery()
    one.pool.execute(first)
    one.pool.lay_behind(second)
    one.stage.let_end(first)
    until(lambda: len(one.stage.begun()) == 2)
    assert not one.pool.take_back(second[0])
    one.stage.let_end()
    until(lambda: len(one.over) == 2, turn=one.hear)


def test_what_lay_behind_what_a_child_died_with_is_nobodys(one: Table) -> None:
    first, second = delivery(), delivery()
    one.pool.execute(first)
    until(lambda: one.stage.begun() == [first[0]])
    one.pool.lay_behind(second)
    end(one.children[0].pid)
    until(lambda: bool(one.over), turn=one.pool.bury)
    assert one.over == [(first[0], False, "")]
    assert one.unread == [second[0]]
    assert one.stage.observer.told[-2:] == [("expects no more", ""), ("lost -9", first[0])]
    assert one.pool.room() == 1, "another child was made"


def test_a_child_that_died_with_what_had_lain_behind_is_lost_with_that(one: Table) -> None:
    first, second = delivery(), delivery()
    one.pool.execute(first)
    one.pool.lay_behind(second)
    one.stage.let_end(first)
    until(lambda: len(one.stage.begun()) == 2)
    end(one.children[0].pid)
    until(lambda: len(one.over) == 2, turn=one.pool.bury)
    assert one.over == [(first[0], True, second[0]), (second[0], False, "")]
    assert one.unread == []
    assert one.stage.observer.told[-1] == ("lost -9", second[0])


@pytest.mark.parametrize("behind", [True, False])
def test_what_is_longer_than_a_frame_lies_behind_nothing_and_has_nothing_behind_it(
    one: Table, *, behind: bool
) -> None:
    long, short = delivery(identity="x" * 3 * FRAME_BYTES), delivery()
    one.pool.execute(short if behind else long)
    assert not one.pool.lay_behind(long if behind else short)
    one.stage.let_end()
    until(lambda: bool(one.over), turn=one.hear)
    assert one.stage.begun() == [(short if behind else long)[0]]


def test_a_process_for_each_task_has_nothing_behind_it(stage: Stage) -> None:
    table = Table(stage, 0)
    first = delivery()
    table.pool.execute(first)
    assert not table.pool.lay_behind(delivery())
    stage.let_end()
    until(table.pool.is_empty, turn=table.pool.bury)
    assert table.over == [(first[0], True, "")]
