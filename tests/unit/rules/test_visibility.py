from __future__ import annotations

import ast
import re
from pathlib import Path
from string import Formatter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_app.rules import visibility
from scheduler_app.rules.visibility import AttemptStanding, Place

CHECKOUT = Path(__file__).parents[3]
STORED = {"run", "run_attempt", "task_instance", "attempt", "executor_event"}
DERIVED = {"flow", "job", "ghost"}  # their lists tell their standing from a time
CHIPS = {
    "SUPERSEDED",
    "FENCED",
    "GHOST",
    "STALE EVENT",
    "DUPLICATE",
    "ORPHAN",
    "OUT OF TERM",
    "CLOCK",
    "UNKNOWN SENDER",
    "OTHER",
}
CODES_OF_ATTEMPTS = {
    "superseded_by_retry",
    "superseded_by_resume",
    "superseded_by_clear",
    "superseded_by_run_attempt",
    "lost_worker",
    "ghost_no_record",
    "ghost_after_takeover",
    "unknown_state",
    # Beside the design's:
    "superseded_by_group_attempt",  # a group that is retried whole is no clear of a person
    "callback_repeated",  # a callback has no try whose dispatch is replaced
}
CODES_OF_EVENTS = {
    "ghost_no_record",
    "stale_after_defer",
    "stale_superseded",
    "late_after_terminal",
    "ghost_no_task",
    "stale_other_try",
    "stale_not_executing",
    "stale_requeued",
    "stale_still_held",
    "unknown_kind",
    "duplicate_delivery",
    "refused_superseded",
    "refused_frozen",
    "refused_run_finished",
    "fenced_stale_leader",
    "fenced_other_database",
}
CODES_OF_RUNS = {"duplicate_logical_date", "ghost_run", "imported_duplicate"}


def of_noun(noun: str) -> set[str]:
    return {code for code, reason in visibility.REASONS.items() if noun in reason.nouns}


def test_the_table_has_every_code_of_the_design_and_a_runs_code_reaches_what_is_below() -> None:
    assert of_noun("executor_event") == CODES_OF_EVENTS
    assert of_noun("attempt") == CODES_OF_ATTEMPTS | CODES_OF_RUNS
    assert of_noun("task_instance") == {"removed_from_flow", "unknown_state"} | CODES_OF_RUNS
    own = {"skipped_overlap"}  # of a run that has nothing below it
    assert of_noun("run") == {"unknown_state"} | CODES_OF_RUNS | own
    assert of_noun("run_attempt") == {"superseded_by_run_attempt"} | CODES_OF_RUNS | own


@pytest.mark.parametrize("code", sorted(visibility.REASONS))
def test_each_reason_is_whole(code: str) -> None:
    reason = visibility.REASONS[code]
    assert reason.code == code
    assert len(code) <= 40, "the width of its column"
    assert reason.nouns
    assert reason.nouns <= STORED or reason.nouns <= DERIVED
    assert reason.chip in CHIPS
    assert reason.template.endswith(".")
    named = {name for _, name, _, _ in Formatter().parse(reason.template) if name}
    assert named, "a sentence shows the values that were compared"
    writer = "transitions." if reason.nouns <= STORED else "queries."
    assert reason.set_by.startswith(writer)


def test_every_code_that_is_written_somewhere_is_in_the_table() -> None:
    """Looks for literals in the shape of the families of codes, wherever the product has them."""
    family = re.compile(r"(superseded_by|stale|refused|fenced|ghost)_[a-z_]+")
    found = {
        node.value
        for module in (CHECKOUT / "scheduler_app").rglob("*.py")
        if module.parent.name not in {"models", "migrations"}  # names of tables and indexes
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and family.fullmatch(node.value)
    }
    # A column, a kind of lease event, a name that authors import.
    other = {"superseded_by_id", "fenced_write", "fenced_upsert"}
    assert found - other - visibility.REASONS.keys() == set()
    assert "superseded_by_retry" in found


def test_a_sentence_shows_the_stored_values() -> None:
    detail = {
        "try_number": 1,
        "outcome": "failed",
        "new_try_number": 2,
        "shard": 4,
        "token": 17,
        "rule": "dispatch",
    }
    assert visibility.explain("superseded_by_retry", detail) == (
        "Try 1 ended as failed; try 2 replaced it (shard 4, token 17)."
    )


@pytest.mark.parametrize("detail", [None, {}, {"attempt_id": None}, {"attempt_id": ""}])
def test_a_value_that_was_not_stored_reads_unknown(detail: dict[str, object] | None) -> None:
    assert visibility.explain("ghost_no_record", detail) == (
        "No attempt with id unknown was issued."
    )


def test_a_zero_is_a_value() -> None:
    assert "resume 0;" in visibility.explain("superseded_by_resume", {"resume_index": 0})


def test_a_code_that_is_not_in_the_table_is_shown_as_it_is() -> None:
    assert visibility.explain("of_tomorrow", {"a": 1}) == "of_tomorrow"
    assert visibility.chip("of_tomorrow") == "OTHER"
    assert visibility.chip("lost_worker") == "SUPERSEDED"


class Unspeakable:
    def __str__(self) -> str:
        raise ValueError("no words")


@given(
    st.sampled_from([*visibility.REASONS, "of_tomorrow", ""]),
    st.none()
    | st.lists(st.integers())
    | st.dictionaries(
        st.sampled_from(["attempt_id", "event", "outcome", "token", "x"]),
        st.none()
        | st.text()
        | st.integers()
        | st.lists(st.text())
        | st.builds(Unspeakable)
        | st.sampled_from(["{", "{0}", "{x.__class__}", "%s"]),
    ),
)
def test_an_explanation_never_raises_and_is_never_long(code: str, detail: Any) -> None:
    sentence = visibility.explain(code, detail)
    assert len(sentence) <= 7 * 200 + 200


def test_a_value_in_braces_is_shown_and_not_filled_in() -> None:
    assert "{token}" in visibility.explain("ghost_no_record", {"attempt_id": "{token}", "token": 1})


FIRST = Place(run_attempt=1, try_number=1, resume_index=0, dispatch_no=1)


def standing(**overrides: Any) -> AttemptStanding:
    values: dict[str, Any] = {"is_current": False, "place": FIRST}
    return AttemptStanding(**values | overrides)


def after(**overrides: Any) -> Place:
    values: dict[str, Any] = {
        "run_attempt": 1,
        "try_number": 1,
        "resume_index": 0,
        "dispatch_no": 1,
    }
    return Place(**values | overrides)


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        (standing(is_current=True), None),
        (standing(successor=after(try_number=2)), "superseded_by_retry"),
        (standing(successor=after(try_number=2), is_cleared=True), "superseded_by_clear"),
        (standing(successor=after(resume_index=1)), "superseded_by_resume"),
        (standing(successor=after(dispatch_no=2)), "lost_worker"),
        (standing(is_cleared=True), "superseded_by_clear"),
        (standing(is_cleared=True, is_of_group=True), "superseded_by_group_attempt"),
        (standing(is_cleared=True, has_cleared_run=True), "superseded_by_run_attempt"),
        (
            standing(
                is_cleared=True,
                has_cleared_run=True,
                successor=after(run_attempt=2, try_number=2),
            ),
            "superseded_by_run_attempt",
        ),
        (
            # The reason that was given first stays, whatever cleared the run later.
            standing(successor=after(run_attempt=3, try_number=2)),
            "superseded_by_retry",
        ),
        (standing(place=None), "ghost_no_record"),
        (standing(place=None, is_found_in_take_over=True), "ghost_after_takeover"),
        (standing(is_current=True, is_state_known=False), "unknown_state"),
        (standing(is_current=True, run_code="ghost_run"), "ghost_run"),
        (standing(kind="callback"), None),
        (standing(), visibility.UNEXPLAINED),
        (standing(successor=after()), visibility.UNEXPLAINED),
    ],
)
def test_the_standing_of_an_attempt_follows_from_facts(
    facts: AttemptStanding, code: str | None
) -> None:
    assert visibility.derive_attempt_standing(facts) == code


def test_what_has_no_reason_is_in_no_table_so_that_an_audit_finds_it() -> None:
    assert visibility.UNEXPLAINED not in visibility.REASONS


@pytest.mark.parametrize(
    ("verdict", "code", "expected"),
    [
        ("pending", None, None),
        ("confirmed", None, None),
        ("confirmed", "killed_externally", None),
        ("ignored", "stale_superseded", "stale_superseded"),
        ("refused", "refused_frozen", "refused_frozen"),
        ("ghost", "ghost_no_record", "ghost_no_record"),
        ("ignored", None, visibility.UNEXPLAINED),
    ],
)
def test_the_standing_of_an_event_follows_from_its_verdict(
    verdict: str, code: str | None, expected: str | None
) -> None:
    assert visibility.derive_event_standing(verdict, code) == expected


@pytest.mark.parametrize(
    ("is_in_version", "run_code", "expected"),
    [
        (True, None, None),
        (False, None, "removed_from_flow"),
        (True, "ghost_run", "ghost_run"),
        (False, "ghost_run", "ghost_run"),
    ],
)
def test_the_standing_of_a_task_instance_follows_from_its_version_and_run(
    is_in_version: bool, run_code: str | None, expected: str | None
) -> None:
    found = visibility.derive_task_instance_standing(is_in_version=is_in_version, run_code=run_code)
    assert found == expected


@pytest.mark.parametrize(
    ("number", "run_code", "expected"),
    [
        (2, None, None),
        (1, None, "superseded_by_run_attempt"),
        (2, "ghost_run", "ghost_run"),
    ],
)
def test_the_standing_of_a_run_attempt_follows_from_the_newest(
    number: int, run_code: str | None, expected: str | None
) -> None:
    found = visibility.derive_run_attempt_standing(
        number=number, run_attempt_now=2, run_code=run_code
    )
    assert found == expected
