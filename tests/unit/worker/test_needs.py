"""What a child remembers of what tasks needed."""

from __future__ import annotations

from scheduler_app.worker.child import NEEDS_MAX, Needs


def test_what_tasks_of_the_last_flow_needed_is_known() -> None:
    needs = Needs()
    needs.note("f", "a", ())
    needs.note("f", "b", ("a",))
    needs.note("f", "c", ("a", "b"))
    assert needs.known() == {"b": ("a",), "c": ("a", "b")}
    needs.note("f", "b", ())
    assert needs.known() == {"c": ("a", "b")}
    needs.note("g", "b", ("x",))
    assert needs.known() == {"b": ("x",)}


def test_no_more_than_a_few_tasks_are_remembered() -> None:
    needs = Needs()
    for number in range(NEEDS_MAX + 3):
        needs.note("f", f"t{number}", ("a",))
        needs.note("f", "t0", ("a",))
    known = needs.known()
    assert len(known) == NEEDS_MAX
    assert {"t0", f"t{NEEDS_MAX + 2}"} <= known.keys()
    assert "t1" not in known
