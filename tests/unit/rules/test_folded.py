"""Many instances of a mapped task told as one line."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from scheduler_app.rules.folded import FOLDED_ABOVE, lines_of, told_indexes


@dataclass(frozen=True)
class One:
    """One task instance of a preview."""

    task_id: str
    map_index: int
    state: str = "failed"
    effect: str = "It runs anew."

    @property
    def name(self) -> str:
        return self.task_id if self.map_index < 0 else f"{self.task_id} [{self.map_index}]"


def test_runs_of_indexes_are_told_by_their_ends() -> None:
    assert told_indexes([]) == ""
    assert told_indexes([7]) == "7"
    assert told_indexes([3, 1, 2, 9, 5, 6, 1]) == "1–3, 5–6, 9"


def test_many_instances_with_one_effect_are_one_line_where_the_first_of_them_stands() -> None:
    found = [One("first", -1), *(One("load", at) for at in range(30)), One("last", -1)]
    lines = lines_of(found)
    assert [(line.name, line.number) for line in lines] == [
        ("first", 1),
        ("load [0–29]", 30),
        ("last", 1),
    ]


def test_few_instances_and_those_with_another_effect_stand_alone() -> None:
    found = [
        *(One("load", at) for at in range(FOLDED_ABOVE)),
        One("load", 99, effect="It is stopped first."),
    ]
    assert [line.name for line in lines_of(found)] == [one.name for one in found]


def test_of_several_runs_each_has_its_line() -> None:
    found = [One("load", at) for at in range(20)] * 2
    lines = lines_of(found, ["a"] * 20 + ["b"] * 20)
    assert [line.name for line in lines] == ["load [0–19] of a", "load [0–19] of b"]


@given(
    st.lists(
        st.builds(One, st.sampled_from("ab"), st.integers(-1, 60), st.sampled_from(["x", "y"])),
        unique=True,
    )
)
def test_every_one_is_counted_once(found: list[One]) -> None:
    assert sum(line.number for line in lines_of(found)) == len(found)
