"""What must hold after any fault: the ledger, the bank and what the API shows, compared.

Pure: three witnesses come in, findings go out. A finding says what was expected and what was seen,
and names the rows that are wrong.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.drills.ledger import END, START

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scheduler_app.drills.ledger import Bank, Line

Row = dict[str, Any]
NAMED_MAX: Final = 5  # rows that a finding names; the rest is counted
TERMINAL: Final = frozenset({"success", "failed"})  # states of a run


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that must hold, and whether it does."""

    what: str
    expected: str
    seen: str
    holds: bool
    named: tuple[str, ...] = ()  # what is wrong, a line each


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """One list of the API: what it says it holds, and how many rows it gave in each view."""

    shown: int
    filtered: int
    total: int
    rows: Mapping[str, int]  # by view: current, only, all


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What the API shows, the filtered rows included."""

    runs: Sequence[Row] = ()
    task_instances: Sequence[Row] = ()
    attempts: Sequence[Row] = ()
    events: Sequence[Row] = ()
    lists: Mapping[str, Counted] = field(default_factory=dict)


def check(
    lines: Sequence[Line],
    shown: Shown,
    bank: Bank,
    *,
    started: Iterable[tuple[str, str]],
    accepted_before: Mapping[str, str] | None = None,
) -> list[Finding]:
    """Every finding, those that hold too.

    ``started`` are the runs that were asked for, as (flow id, run id); ``accepted_before`` are
    attempts whose result had been accepted at some earlier moment, with their outcome.
    """
    return [
        every_execution_has_a_row(lines, shown),
        every_list_adds_up(shown),
        every_filtered_row_says_why(shown),
        nothing_is_accepted_twice(shown),
        nothing_accepted_was_not_executed(lines, shown),
        no_result_is_lost(lines, shown),
        no_acceptance_was_undone(shown, accepted_before or {}),
        no_attempt_starts_twice(lines),
        every_second_start_has_a_reason(lines, shown),
        tokens_never_fall(shown),
        the_bank_holds_the_newest(shown, bank),
        every_event_is_judged(shown),
        no_run_is_stuck(shown, started),
    ]


def every_execution_has_a_row(lines: Sequence[Line], shown: Shown) -> Finding:
    """Nothing ran that is not shown: each execution's attempt is a row of the API."""
    known = {row["id"] for row in shown.attempts}
    ran = {line.attempt_id: line for line in lines if line.what == START}
    hidden = [line for attempt_id, line in ran.items() if attempt_id not in known]
    return _none_of(
        "every execution that started has a row",
        [f"attempt {line.attempt_id} of {_name(line.execution)} ran unseen" for line in hidden],
        of=len(ran),
    )


def every_list_adds_up(shown: Shown) -> Finding:
    """On each list shown + filtered = total, and each view gives just as many rows."""
    wrong = []
    for name, counted in sorted(shown.lists.items()):
        told = {"current": counted.shown, "only": counted.filtered, "all": counted.total}
        if counted.shown + counted.filtered != counted.total:
            wrong.append(f"{name}: {counted.shown} + {counted.filtered} is not {counted.total}")
        wrong += [
            f"{name}: {rows} rows in view {view}, counted {told[view]}"
            for view, rows in counted.rows.items()
            if rows != told[view]
        ]
    return _none_of("shown + filtered = total", wrong, of=len(shown.lists))


def every_filtered_row_says_why(shown: Shown) -> Finding:
    """A row that is set aside has its code and a sentence."""
    rows = [*shown.runs, *shown.task_instances, *shown.attempts, *shown.events]
    filtered = [row for row in rows if row.get("filter_code")]
    return _none_of(
        "every filtered row says why",
        [f"row {row['id']} has no reason" for row in filtered if not row.get("filter_reason")],
        of=len(filtered),
    )


def nothing_is_accepted_twice(shown: Shown) -> Finding:
    """At most one result is accepted for each task instance, try and resume."""
    accepted = Counter(_execution(row) for row in shown.attempts if row["is_accepted"])
    return _none_of(
        "nothing is accepted twice",
        [f"{_name(key)}: {n} results" for key, n in accepted.items() if n > 1],
        of=len(accepted),
    )


def nothing_accepted_was_not_executed(lines: Sequence[Line], shown: Shown) -> Finding:
    """What was accepted came to its end, by its own word."""
    ended = {line.attempt_id for line in lines if line.what == END}
    accepted = [row for row in shown.attempts if row["is_accepted"] and _is_load(row)]
    # A task that raised before its end says so: its outcome is a failure, and it has no end.
    wrong = [
        f"attempt {row['id']} of {_name(_execution(row))} is {row['outcome']} and never ended"
        for row in accepted
        if row["outcome"] != "failed" and row["id"] not in ended
    ]
    return _none_of("what was accepted was executed", wrong, of=len(accepted))


def no_result_is_lost(lines: Sequence[Line], shown: Shown) -> Finding:
    """An execution that ended was accepted, or its row or an event says why it was not."""
    rows = {row["id"]: row for row in shown.attempts}
    told = {row["attempt_id"] for row in shown.events if row["kind"] == "late_report"}
    ended = {line.attempt_id: line for line in lines if line.what == END}
    wrong = []
    for attempt_id, line in ended.items():
        row = rows.get(attempt_id)
        if row is None or row["is_accepted"] or attempt_id in told:
            continue  # without a row it is a finding of its own
        if row["outcome"] is None or not row["outcome_reason"]:
            wrong.append(
                f"attempt {attempt_id} of {_name(line.execution)} ended, and is"
                f" {row['outcome'] or row['state']} without a reason"
            )
    succeeded = [row for row in shown.task_instances if row["state"] == "success" and _is_load(row)]
    accepted = {
        (row["ti"], row["try_number"])
        for row in shown.attempts
        if row["is_accepted"] and row["outcome"] == "success"
    }
    wrong += [
        f"task {row['task_id']} of {row['flow_id']}/{row['run_id']} succeeded without a result"
        for row in succeeded
        if (row["id"], row["try_number"]) not in accepted
    ]
    return _none_of("no result is lost", wrong, of=len(ended) + len(succeeded))


def no_acceptance_was_undone(shown: Shown, before: Mapping[str, str]) -> Finding:
    """What had been accepted before is accepted still, with the same outcome."""
    rows = {row["id"]: row for row in shown.attempts}
    wrong = []
    for attempt_id, outcome in before.items():
        row = rows.get(attempt_id)
        if row is None or not row["is_accepted"] or row["outcome"] != outcome:
            now = row["outcome"] if row else "gone"
            wrong.append(f"attempt {attempt_id} was accepted as {outcome} and is {now}")
    return _none_of("no acceptance is undone", wrong, of=len(before))


def no_attempt_starts_twice(lines: Sequence[Line]) -> Finding:
    """The user code of one attempt is started at most once."""
    starts = Counter(line.attempt_id for line in lines if line.what == START)
    return _none_of(
        "no attempt starts twice",
        [f"attempt {attempt_id}: {n} starts" for attempt_id, n in starts.items() if n > 1],
        of=len(starts),
    )


def every_second_start_has_a_reason(lines: Sequence[Line], shown: Shown) -> Finding:
    """A task starts again in the same try and resume only after an attempt was given up."""
    starts = Counter(line.execution for line in lines if line.what == START)
    given_up = Counter(
        _execution(row) for row in shown.attempts if row["outcome"] in {"lost", "terminated"}
    )
    wrong = [
        f"{_name(key)}: {n} starts, {given_up[key]} attempts given up"
        for key, n in starts.items()
        if n > 1 + given_up[key]
    ]
    return _none_of("every second start follows a recorded loss", wrong, of=len(starts))


def tokens_never_fall(shown: Shown) -> Finding:
    """In each shard, whoever decided later did so under the same lease token or a greater one."""
    by_shard: dict[int, list[Row]] = defaultdict(list)
    for row in shown.attempts:
        if row["shard"] is not None and row["issued_at"] and row["lease_token"] is not None:
            by_shard[row["shard"]].append(row)
    wrong = []
    for shard, rows in by_shard.items():
        rows.sort(key=lambda row: (row["issued_at"], row["fence"]))
        for earlier, later in pairwise(rows):
            if later["lease_token"] < earlier["lease_token"]:
                wrong.append(
                    f"shard {shard}: attempt {later['id']} was issued under token"
                    f" {later['lease_token']} after {earlier['lease_token']}"
                )
    return _none_of("lease tokens never fall", wrong, of=len(by_shard))


def the_bank_holds_the_newest(shown: Shown, bank: Bank) -> Finding:
    """Fences grow with every write to a target, and what it holds is of the accepted attempt."""
    wrong = []
    last: dict[str, int] = {}
    for write in bank.written:
        if write.fence <= last.get(write.target, 0):
            wrong.append(f"{write.target}: fence {write.fence} wrote over {last[write.target]}")
        last[write.target] = write.fence
    held = {write.target: write.attempt_id for write in bank.held}
    current = {row["id"]: row for row in shown.attempts if row["filter_code"] is None}
    for row in current.values():
        if row["outcome"] != "success" or not row["is_accepted"] or not _is_load(row):
            continue
        target = f"{row['flow_id']}/{row['run_id']}/{row['task_id']}/{row['map_index']}"
        if held.get(target) != row["id"]:
            wrong.append(f"{target} holds {held.get(target)}, accepted is {row['id']}")
    return _none_of("the bank holds what was accepted", wrong, of=len(held))


def every_event_is_judged(shown: Shown) -> Finding:
    """No executor event waits for its verdict once everything is over."""
    return _none_of(
        "every event is judged",
        [
            f"event {row['id']} ({row['kind']})"
            for row in shown.events
            if row["verdict"] == "pending"
        ],
        of=len(shown.events),
    )


def no_run_is_stuck(shown: Shown, started: Iterable[tuple[str, str]]) -> Finding:
    """Each run that was asked for is there, and has succeeded."""
    states = {(row["flow_id"], row["run_id"]): row["state"] for row in shown.runs}
    asked = list(started)
    return _none_of(
        "every run succeeds",
        [
            f"run {flow_id}/{run_id} is {states.get((flow_id, run_id), 'not there')}"
            for flow_id, run_id in asked
            if states.get((flow_id, run_id)) != "success"
        ],
        of=len(asked),
    )


def _none_of(what: str, wrong: list[str], *, of: int) -> Finding:
    named = tuple(wrong[:NAMED_MAX])
    if len(wrong) > NAMED_MAX:
        named += (f"... and {len(wrong) - NAMED_MAX} more",)
    return Finding(
        what=what,
        expected=f"0 wrong of {of}",
        seen=f"{len(wrong)} wrong",
        holds=not wrong,
        named=named,
    )


def _execution(row: Row) -> tuple[str, str, str, int, int, int]:
    return (
        row["flow_id"],
        row["run_id"],
        row["task_id"],
        row["map_index"],
        row["try_number"],
        row["resume_index"],
    )


def _name(execution: tuple[str, str, str, int, int, int]) -> str:
    flow_id, run_id, task_id, map_index, try_number, resume_index = execution
    mapped = f"[{map_index}]" if map_index >= 0 else ""
    return f"{flow_id}/{run_id}/{task_id}{mapped} try {try_number} resume {resume_index}"


def _is_load(row: Row) -> bool:
    """Whether the row is of a flow whose tasks write the ledger and the bank."""
    return str(row["flow_id"]).startswith("drill_")
