"""When a worker counts as deaf: deliveries wait, children are free, and it takes none."""

from __future__ import annotations

import pytest

from scheduler_app.worker.appetite import LOOKS, Appetite


class Table:
    """What waits, how much room there is, and what was taken."""

    def __init__(self) -> None:
        self.waiting: int | None = 5
        self.has_room = True
        self.taken = 7
        self.appetite = Appetite(
            waiting=lambda: self.waiting,
            has_room=lambda: self.has_room,
            taken=lambda: self.taken,
            every_s=60,
        )

    def look(self, times: int = 1) -> bool:
        for _ in range(times):
            self.appetite.look()
        return self.appetite.is_deaf


@pytest.fixture
def table() -> Table:
    made = Table()
    assert not made.look(), "the first look has nothing to compare with"
    return made


def test_nothing_taken_for_several_looks_is_deaf(table: Table) -> None:
    assert not table.look(LOOKS - 1)
    assert table.look()


def test_what_is_taken_counts(table: Table) -> None:
    for _ in range(LOOKS * 2):
        table.taken += 1
        assert not table.look()


@pytest.mark.parametrize("waiting", [0, None])
def test_an_empty_or_silent_queue_is_nobody_s_fault(table: Table, waiting: int | None) -> None:
    table.waiting = waiting
    assert not table.look(LOOKS * 2)


def test_a_full_house_need_not_take_more(table: Table) -> None:
    table.has_room = False
    assert not table.look(LOOKS * 2)


def test_a_deaf_one_that_takes_again_is_not_deaf(table: Table) -> None:
    assert table.look(LOOKS)
    table.taken += 1
    assert not table.look()


def test_looks_in_vain_count_in_a_row_only(table: Table) -> None:
    table.look(LOOKS - 1)
    table.waiting = 0
    table.look()
    table.waiting = 5
    assert not table.look(LOOKS - 1)
