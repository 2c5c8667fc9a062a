"""Every vector of executor events against a real database: by (task, try), and by attempt id.

What the product does otherwise stands in the tables below, each with its reason and its outcome.
"""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest

from scheduler_app.models import Attempt, Counter, ExecutorEvent, TaskInstance
from scheduler_app.processes import database
from scheduler_app.rules.states import TaskState
from scheduler_app.transitions.executor_event import NewEvent, record_events
from scheduler_app.transitions.ids import uuid7
from tests.integration.scheduler.stage import Stage
from tests.vectors.cases import Case, cases, parameters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler_app.scheduler.leases import Leases

BY_TRY, BY_ID = "by try", "by attempt id"

# -- what is not compared, key by key -----------------------------------------------------------

# Mail is no notion of the product. Callbacks are attempts of their own, tested where they are made;
# which one follows is told by the state: up for retry, or failed.
NOT_COMPARED: Final = frozenset({"callback", "email"})
# Of the counters the one of kills is compared; failures of tasks are counted from rows, not here.
METRICS: Final = frozenset({"killed_externally"})

# -- what differs on purpose --------------------------------------------------------------------

_LOCKED = (
    "A row that somebody has locked loses no event: it stays pending and is judged when the lock is"
    " gone, as test_judge has it."
)
_DEFINITION = (
    "An event never grants success: what ended without the task's own report has failed. Whether it"
    " may be tried again nobody can say without its definition, so it is not."
)
_TRACE = (
    "What was cleared begins from its beginning: resuming in the middle of the execution that was"
    " thrown away would run half a task."
)
_EACH = "Each statement is a row of its own and has a verdict of its own: none replaces another."
_STOPPED = (
    "A clean stop after a clear is what the operator asked for, and no kill (the same vector's case"
    " with one event recommends so)."
)
DIFFERS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "row-locked-success-on-queued": (_LOCKED, {"verdict": "pending", "ti_state": "queued"}),
    "row-locked-failed-on-queued": (_LOCKED, {"verdict": "pending", "ti_state": "queued"}),
    "definition-missing-success-on-queued": (
        _DEFINITION,
        {"verdict": "killed_externally", "ti_state": "failed"},
    ),
    "definition-missing-failed-on-queued": (
        _DEFINITION,
        {"verdict": "killed_externally", "ti_state": "failed"},
    ),
    "definition-missing-failed-on-running-exhausted": (
        _DEFINITION,
        {"verdict": "killed_externally", "ti_state": "failed"},
    ),
    "resume-trace-restarting-success": (
        _TRACE,
        {"verdict": "cleared_and_stopped", "ti_state": "none", "resume_trace": None},
    ),
    "seq-clear-then-stop-then-late-failed": (
        _STOPPED,
        {"after_each": ["none", "none"], "metrics": {}},
    ),
    "batch-two-tries-in-order": (
        _EACH,
        {"ti_state": "up_for_retry", "killed_tries": [2], "ignored_tries": [1]},
    ),
    "batch-same-key-overwritten": (
        _EACH,
        {"ti_state": "up_for_retry", "events_seen": 2, "metrics": {"killed_externally": 1}},
    ),
}

_NEVER_CLAIMED = (
    "An attempt that no worker has claimed did not run: by id that is known, so its delivery came to"
    " nothing and the same attempt is published again, without a retry used up."
)
_NOT_LIVE = (
    "A scheduled task has no live attempt. By id it is known whose end is told of: that of one which"
    " has ended by its own report or was given up before."
)
_ASKED = (
    "By id it is known that the process which ended is the one that the clear asked to stop. However"
    " it ended, that is what was waited for: the task begins anew with all its tries, at once (the"
    " notes on the vectors recommend it)."
)
_AGAIN: Final = {"verdict": "published_again", "ti_state": "queued", "metrics": {}}
_STALE: Final = {"verdict": "ignore", "ti_state": "scheduled", "metrics": {}}
_ANEW: Final = {"verdict": "cleared_and_stopped", "ti_state": "none", "metrics": {}}
DIFFERS_BY_ID: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    **dict.fromkeys(
        (
            "match-queued-success",
            "exhausted-queued-success",
            "exhausted-boundary-try-equals-max",
            "noretries-configured-but-max-tries-high",
            "resume-trace-queued-failed",
            "restarting-event-on-queued",
            "callback-none-registered",
            "mail-retry",
            "mail-failure",
            "executor-holds-key-queued-success",
            "definition-missing-success-on-queued",
            "definition-missing-failed-on-queued",
        ),
        (_NEVER_CLAIMED, _AGAIN),
    ),
    **dict.fromkeys(
        ("match-scheduled-failed", "exhausted-scheduled-failed", "annotate-scheduled-running"),
        (_NOT_LIVE, _STALE),
    ),
    **dict.fromkeys(
        (
            "match-restarting-failed",
            "exhausted-restarting-failed",
            "callback-restarting-failed",
            "restarting-failed-retries-0",
        ),
        (_ASKED, _ANEW),
    ),
    "seq-duplicate-failed": (
        _NEVER_CLAIMED,
        {"after_each": ["queued", "queued"], "metrics": {}},
    ),
    "seq-late-event-after-retry-queued": (
        _NEVER_CLAIMED,
        {"after_each": ["queued", "queued", "queued"], "metrics": {}},
    ),
    "batch-two-tries-in-order": (
        _NEVER_CLAIMED,
        {"ti_state": "queued", "killed_tries": [], "ignored_tries": [1], "metrics": {}},
    ),
    "batch-two-tries-reverse": (
        _NEVER_CLAIMED,
        {"ti_state": "queued", "killed_tries": [], "ignored_tries": [1], "metrics": {}},
    ),
    "batch-same-key-overwritten": (
        _NEVER_CLAIMED,
        {"ti_state": "queued", "events_seen": 2, "metrics": {}},
    ),
}

EVERY: Final = list(cases("executor_events"))


class Bench:
    """One task instance with its attempts, as a vector gives them, and what is then said of it."""

    def __init__(self, raw: psycopg.Connection[Any], leases: Leases, case: Case, form: str) -> None:
        self.raw = raw
        self.case = case
        self.form = form
        self.ti = given = case.given["ti"]
        self.spoken: list[int] = []  # ids of events, in their order
        retries = given["retries_configured"]
        self.stage = stage = Stage(raw, leases, retries=retries)
        self.world, self.row, self.current = stage.world, stage.row, stage.current
        number = given["try_number"]
        self.earlier = {  # the last attempt of each earlier try
            earlier: stage.predecessor(earlier, "failed", "superseded_by_retry")
            for earlier in range(1, number)
        }
        self.deferred = self.lost = None
        if given["next_method"] and given["state"] in ("queued", "running", "restarting"):
            self.deferred = stage.predecessor(number, "deferred", "superseded_by_resume")
        if given["queued_by"] == "other":
            self.lost = stage.predecessor(number, "lost", "lost_worker")
        stage.put(
            given["state"],
            is_given_up=given["queued_by"] is None,
            resume_index=1 if self.deferred else 0,
            try_number=number,
            max_tries=given["max_tries"],
            # A budget is as long as the definition's retries.
            budget_start=max(0, given["max_tries"] - retries),
            next_method=given["next_method"],
            map_index=given.get("map_index", -1),
        )
        if case.given["flow"]["definition"] == "missing":
            stage.lose_definition()

    # -- said -------------------------------------------------------------------------------

    def say(self, event: dict[str, Any]) -> None:
        """A witness says so, a minute ago."""
        state = event["state"]
        kinds = {"success": "exit_success", "failed": "exit_failed", "restarting": "exit_failed"}
        payload = {"state": state} | ({"info": event["info"]} if event.get("info") else {})
        about: dict[str, Any] = {}
        if self.form == BY_ID:
            about = {"attempt_id": self._named(event)}
        else:
            is_here = event.get("map_index", self.ti.get("map_index", -1)) == self.ti.get(
                "map_index", -1
            )
            about = {
                "attempt_id": None,
                "ti_id": self.row.pk if is_here else None,
                "try_number": event["try_number"],
            }
        holds = self.case.given["executor"]["holds_same_key"]
        if self.form == BY_ID and holds:
            payload["pid"] = 999  # another process than the one that claimed
        record_events(
            self.raw,
            events=[
                NewEvent(
                    kind=kinds.get(state, f"executor_{state}"),
                    source="executor: bench",
                    source_job_id=self._source(),
                    payload=payload,
                    **about,
                )
            ],
        )
        self.spoken.append(ExecutorEvent.objects.latest("id").pk)
        if self.form == BY_TRY and holds:
            # It took the same try on again since.
            self._take_on(event["try_number"])
        self._age()

    def _take_on(self, try_number: int) -> None:
        event = NewEvent(
            attempt_id=None,
            ti_id=self.row.pk,
            try_number=try_number,
            kind="executor_running",
            source="executor: bench",
            source_job_id=self._source(),
        )
        record_events(self.raw, events=[event])

    def _source(self) -> uuid.UUID:
        """The scheduler whose executor speaks: the one that queued the task, or another."""
        return uuid7() if self.ti["queued_by"] == "other" else self.world.leases.holder

    def _named(self, event: dict[str, Any]) -> uuid.UUID:
        """The attempt of the execution that the vector means."""
        if event.get("map_index", self.ti.get("map_index", -1)) != self.ti.get("map_index", -1):
            return uuid7()
        if event["try_number"] > self.ti["try_number"] and event["try_number"] not in self.earlier:
            return uuid7()  # of a try that nobody issued
        if event["try_number"] in self.earlier:
            return self.earlier[event["try_number"]]
        if self.ti["state"] in ("skipped", "upstream_failed"):
            return uuid7()
        if self.lost is not None:
            return self.lost
        if event["state"] == "success" and self.deferred and self.ti["state"] != "restarting":
            return self.deferred
        return self.current

    def _age(self) -> None:
        with self.raw.transaction():
            self.raw.execute(
                "ALTER TABLE executor_event DISABLE TRIGGER executor_event_is_judged_once"
            )
            self.raw.execute(
                "UPDATE executor_event SET received_at = clock_timestamp() - interval '1 minute'"
                " WHERE verdict = 'pending'"
            )
            self.raw.execute(
                "ALTER TABLE executor_event ENABLE TRIGGER executor_event_is_judged_once"
            )

    def change(self, stored: dict[str, Any]) -> None:
        """The task was queued for its next try."""
        self.earlier[self.ti["try_number"]] = self.current
        state = TaskInstance.objects.get(pk=self.row.pk).state
        if state != TaskState.UP_FOR_RETRY:
            return  # by id nothing had ended, so nothing is queued anew
        self.world.messages.clear()
        self.world.tick(self.row.run_id)
        (message,) = self.world.messages
        self.current = message.attempt_id
        self.ti = {**self.ti, **stored}

    # -- seen -------------------------------------------------------------------------------

    def seen(self) -> dict[str, Any]:
        """What has come of it, in the words of the vectors."""
        row = TaskInstance.objects.get(pk=self.row.pk)
        events = {event.pk: event for event in ExecutorEvent.objects.filter(pk__in=self.spoken)}
        spoken = [events[pk] for pk in self.spoken]
        killed = Counter.objects.get(name="scheduler_tasks_killed_externally_total").value
        attempt = Attempt.objects.filter(pk=self.current).first()
        told = [e for e in spoken if e.verdict == "confirmed" and e.kind.startswith("executor_")]
        kills = [e for e in spoken if e.verdict_code == "killed_externally"]
        aside = [e for e in spoken if e.verdict in ("ignored", "ghost", "refused")]
        return {
            "verdict": _in_words(spoken[-1]),
            "ti_state": row.state,
            "try_number": row.try_number,
            "max_tries": row.max_tries,
            "resume_trace": row.next_method,
            "metrics": {"killed_externally": killed} if killed else {},
            # It moved, and what had been executed until then is on record with its outcome.
            "attempt_archived": row.state != self.ti["state"]
            and attempt is not None
            and attempt.outcome is not None,
            "external_id": told[-1].payload.get("info") if told else None,
            "events_seen": len(spoken),
            "killed_tries": sorted(e.try_number or 0 for e in kills),
            "processed_try": kills[-1].try_number if kills else None,
            "ignored_tries": sorted(e.try_number or 0 for e in aside),
            "dropped_tries": sorted(e.try_number or 0 for e in spoken if e.verdict == "pending"),
        }


def _in_words(event: ExecutorEvent) -> str:
    """The verdict in the words of the vectors."""
    if event.verdict == "pending":
        return "pending"
    if event.verdict_code == "unknown_kind":
        return "unrecognised_event"
    if event.verdict != "confirmed":
        return "ignore"
    if event.verdict_code is None:  # noted, or it agrees with what is known
        return "record_external_id" if event.kind.startswith("executor_") else "ignore"
    return "published_again" if event.verdict_code == "never_claimed" else event.verdict_code


@pytest.fixture(autouse=True)
def _no_grace(settings: Any) -> None:
    """The events are a minute old; a report would have come."""
    settings.EXIT_GRACE_S = 5.0


@pytest.fixture
def locker(raw: psycopg.Connection[Any]) -> Iterator[psycopg.Connection[Any]]:
    """Somebody else's connection."""
    del raw
    with database.connect("scheduler") as connection:
        yield connection


@pytest.mark.parametrize("form", [BY_TRY, BY_ID])
@parameters(EVERY)
def test_an_event_is_judged_as_the_vector_says(
    raw: psycopg.Connection[Any],
    locker: psycopg.Connection[Any],
    leases: Leases,
    caplog: pytest.LogCaptureFixture,
    case: Case,
    form: str,
) -> None:
    bench = Bench(raw, leases, case, form)
    after_each = []
    caplog.set_level(logging.INFO, "scheduler_app.scheduler.judge")
    if bench.ti["lock"] == "held_by_other":
        with locker.transaction():
            locker.execute("SELECT 1 FROM task_instance WHERE id = %s FOR UPDATE", [bench.row.pk])
            bench.say(case.when["event"])
            bench.world.judge()
            got = bench.seen()
    else:
        if case.given["executor"]["holds_other_try"] and form == BY_TRY:
            bench._take_on(case.given["executor"]["holds_other_try"])
        steps = case.when.get("events_in_turn")
        for step in steps or ([case.when["event"]] if "event" in case.when else []):
            if "store_change" in step:
                bench.change(step["store_change"])
            else:
                bench.say(step)
                bench.world.judge()
            after_each.append(bench.seen()["ti_state"])
        for step in case.when.get("batch", case.when.get("buffer_writes", ())):
            bench.say(step)
        bench.world.judge()
        got = bench.seen() | {"after_each": after_each}
    mismatches = [r for r in caplog.records if hasattr(r, "executor_state")]
    got["mismatch_logged"] = bool(mismatches)
    for line in (vars(record) for record in mismatches):
        assert line["executor_state"] in ("Exit with success", "Exit with failure")
        assert line["task_state"] in ("scheduled", "queued", "running", "restarting")
    wanted = _wanted(case, form)
    assert {key: got[key] for key in wanted} == wanted
    if got["metrics"] == {}:
        assert not mismatches, "an ignored event counts nothing and says nothing of a kill"


def _wanted(case: Case, form: str) -> dict[str, Any]:
    if form == BY_ID and case.id in DIFFERS_BY_ID:
        return DIFFERS_BY_ID[case.id][1]
    if case.id in DIFFERS:
        return DIFFERS[case.id][1]
    wanted = {key: value for key, value in case.wanted.items() if key not in NOT_COMPARED}
    if "metrics" in wanted:
        wanted["metrics"] = {k: n for k, n in wanted["metrics"].items() if k in METRICS}
    moves = wanted.get("verdict") in ("killed_externally", "cleared_and_stopped")
    if moves and not wanted["attempt_archived"]:
        # Every attempt that ended is kept, the last one of a task and a cleared one too.
        wanted["attempt_archived"] = True
    return wanted


def test_every_vector_that_is_named_exists() -> None:
    known = {one.id for one in EVERY}
    assert known >= DIFFERS.keys() | DIFFERS_BY_ID.keys()
    assert len(known) == len(EVERY) == 98
