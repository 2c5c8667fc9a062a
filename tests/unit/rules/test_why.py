"""Every state and cause has a sentence of its own that names the facts and the rule."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_app.rules import why
from scheduler_app.rules.states import AttemptOutcome, TaskState

T0 = datetime(2026, 1, 31, 2, 0, 0, tzinfo=UTC)
AT = "2026-01-31 02:00:00 UTC"
LATER = T0 + timedelta(minutes=5)
AT_LATER = "2026-01-31 02:05:00 UTC"


def facts(state: str, **changed: Any) -> why.Facts:
    base: dict[str, Any] = {
        "state": state,
        "task_id": "load",
        "try_number": 1,
        "max_tries": 2,
        "now": T0,
        "decider": "host-1:10",
        "shard": 3,
        "infra_budget": 3,
        "ended_at": T0,
    }
    return why.Facts(**{**base, **changed})


def attempt(**changed: Any) -> why.AttemptFacts:
    base: dict[str, Any] = {
        "id": "a1",
        "state": "ended",
        "process": "host-2:77",
        "issued_at": T0,
        "published_at": T0,
        "started_at": T0,
        "ended_at": T0,
        "publish_count": 1,
    }
    return why.AttemptFacts(**{**base, **changed})


def up(task_id: str, state: str, number: int = 1) -> why.Upstream:
    return why.Upstream(task_id=task_id, state=state, number=number)


LOST = attempt(outcome="lost", reason="no heartbeat since 02:00:00 UTC; loss 1 of 3")
BACK = attempt(outcome="lost", reason="Its worker was stopped and gave it back.")
ERROR = attempt(outcome="failed", error="OSError: disk full", is_accepted=True)
KILLED = attempt(
    outcome="terminated",
    reason="Kill of attempt a1: ...",
    signal="SIGKILL",
    event_code="killed_externally",
)
LIMIT = attempt(
    outcome="terminated",
    reason="it did not stop within 5 s of its time limit of 60 s. Its code took no notice of an"
    " exception; SIGTERM ended it.",
)
HOLDER = why.Holder(name="f r1 a", slots=2, since=T0)
WAIT = {"wait_since": T0, "ready_at": T0}

CASES: dict[str, tuple[why.Facts, str, str]] = {
    # none
    "run has not started": (
        facts("none", run_state="queued", run_limit=2),
        "max_active_runs",
        "fewer runs of its flow are active than max_active_runs (2) allows",
    ),
    "nobody decides": (facts("none", decider=None), "no_lease", "lease of shard 3"),
    "waits for its upstream": (
        facts("none", upstream=[up("a", "success"), up("b", "running"), up("c", "none")]),
        "upstream:all_success",
        "It waits for b (running), c (not started); by its rule all_success it starts when all",
    ),
    "waits for many": (
        facts("none", rule="all_done", upstream=[up(f"t{n}", "none", 2) for n in range(5)]),
        "upstream:all_done",
        "t0 (2 not started), t1 (2 not started), t2 (2 not started) and 2 more; by its rule all_done",
    ),
    "waits by a rule of a newer version": (
        facts("none", rule="two_of_three", upstream=[up("a", "queued")]),
        "upstream:two_of_three",
        "It waits for a (queued), by its rule two_of_three.",
    ),
    "waits for one to fail": (
        facts("none", rule="one_failed", upstream=[up("a", "up_for_retry")]),
        "upstream:one_failed",
        "a (up for retry); by its rule one_failed it starts as soon as one of them fails",
    ),
    "has no upstream": (
        facts("none"),
        "ready",
        "It has no upstream; scheduler host-1:10 starts it at its next look.",
    ),
    "its upstream has ended": (
        facts("none", upstream=[up("a", "success")]),
        "ready",
        "Its upstream has ended as its rule asks",
    ),
    "waits for a setup that is not right before it": (
        facts("none", upstream=[up("a", "success")], setups=[up("make", "running")]),
        "setup",
        "It waits for a setup that it needs whatever its rule: make (running).",
    ),
    "waits for the rest of a unit": (
        facts(
            "none",
            upstream=[up("p.a", "success")],
            units=[why.Unit(group_id="p", members=[up("p.a", "success"), up("p.b", "queued")])],
        ),
        "group",
        "It waits for all of group p, which is one unit: p.b (queued).",
    ),
    "waits for a unit that begins anew": (
        facts(
            "none",
            upstream=[up("p.a", "success")],
            units=[
                why.Unit(
                    group_id="p", members=[up("p.a", "success"), up("p.b", "failed")], retry_at=T0
                )
            ],
        ),
        "group",
        f"which is one unit: p.b failed. It begins anew at {AT}.",
    ),
    "a teardown waits for what may use what was made": (
        facts(
            "none",
            upstream=[up("a", "success"), up("make", "success")],
            teardown_of=["make"],
            scope=[up("b", "running"), up("c", "success")],
        ),
        "scope",
        "It is a teardown, and waits for what stands between make and itself: b (running).",
    ),
    # scheduled
    "ready": (facts("scheduled", ready_at=T0), "ready", f"It is ready since {AT}"),
    "pool is full": (
        facts(
            "scheduled",
            wait_code="pool_full",
            wait_detail="It needs 1 slot of pool 'etl', which has 0 free.",
            pool="etl",
            holders=[HOLDER, why.Holder(name=None, slots=1, since=T0)],
            **WAIT,
        ),
        "pool_full",
        f"which has 0 free (since {AT}); the slots of pool etl are held by f r1 a (2 slots, since"
        f" {AT}), a task of a flow that you may not see (1 slot, since {AT}).",
    ),
    "run is at its limit": (
        facts(
            "scheduled",
            wait_code="run_limit",
            wait_detail="As many tasks of its run are active as max_active_tasks allows.",
            holders=[HOLDER] * 5,
            **WAIT,
        ),
        "run_limit",
        "its places are held by f r1 a (2 slots, since",
    ),
    "no such pool": (
        facts("scheduled", wait_code="unknown_pool", wait_detail="There is no pool 'x'.", **WAIT),
        "unknown_pool",
        f"There is no pool 'x' (since {AT}).",
    ),
    "queue is full": (
        facts("scheduled", wait_code="queue_full", wait_detail="Enough wait.", queue="gpu", **WAIT),
        "queue_full",
        "no worker that is alive listens there: start one with `manage.py worker --queues gpu`",
    ),
    "others come first": (
        facts(
            "scheduled", wait_code="tick_limit", wait_detail="There is room; 200 others.", **WAIT
        ),
        "tick_limit",
        "There is room; 200 others",
    ),
    "worker lost": (
        facts("scheduled", attempt=LOST, infra_losses=1),
        "worker_lost",
        f"Process host-2:77 was lost at {AT} (no heartbeat since 02:00:00 UTC; loss 1 of 3), loss 1"
        " of at most 3 that are made good; scheduler host-1:10 starts it",
    ),
    "handed back": (
        facts("scheduled", attempt=BACK),
        "worker_lost",
        "gave it back), which uses up no retry; scheduler",
    ),
    "worker lost, and no room": (
        facts("scheduled", attempt=LOST, wait_code="pool_full", wait_detail="No room.", **WAIT),
        "pool_full",
        "which uses up no retry; no room",
    ),
    "trigger fired": (
        facts("scheduled", next_method="loaded", attempt=attempt(outcome="deferred")),
        "resume",
        "Its trigger has fired, and it resumes in `loaded`; scheduler",
    ),
    # queued
    "not sent": (
        facts("queued", attempt=attempt(state="issued", published_at=None)),
        "unpublished",
        f"was issued at {AT}, and its message to queue default is about to be sent",
    ),
    "in the queue": (
        facts("queued", attempt=attempt(state="issued"), queue_workers=2),
        "queued",
        f"waits in queue default since {AT}; 2 workers that listen there are busy or about",
    ),
    "sent again": (
        facts("queued", attempt=attempt(state="issued", publish_count=3), queue_workers=1),
        "queued",
        "sent 3 times; 1 worker that listens there is busy",
    ),
    "nobody listens": (
        facts("queued", attempt=attempt(state="issued"), queue="gpu"),
        "nobody_listens",
        "no worker that is alive listens there: start one with `manage.py worker --queues gpu`",
    ),
    "queued without an attempt": (facts("queued"), "queued", "a worker of queue default"),
    # running
    "running": (
        facts("running", attempt=attempt(state="running")),
        "running",
        f"Process host-2:77 executes it since {AT} (try 1 of 3).",
    ),
    "running after a resume": (
        facts("running", next_method="loaded", attempt=attempt(state="running")),
        "running",
        "resumed in `loaded`",
    ),
    "silent": (
        facts("running", attempt=attempt(state="running", is_silent=True, heartbeat_at=T0)),
        "silent",
        f"its last heartbeat is of {AT}, and it is given up as lost",
    ),
    "running without an attempt": (facts("running"), "running", "A worker executes it"),
    "asked to end": (
        facts(
            "running",
            stop_at=T0,
            stop_reason="ada terminated it: bad data",
            attempt=attempt(state="running"),
        ),
        "terminating",
        f"ada terminated it: bad data ({AT}); host-2:77 stops it, by an exception, then SIGTERM",
    ),
    "restarting": (
        facts("restarting", attempt=attempt(state="running")),
        "restarting",
        "begins anew as soon as process host-2:77 has stopped it",
    ),
    # deferred
    "deferred to a time": (
        facts(
            "deferred",
            trigger=why.TriggerFacts(kind="time", state="waiting", due_at=LATER, since=T0),
        ),
        "deferred:time",
        f"It waits since {AT} for {AT_LATER}.",
    ),
    "deferred to a time that has passed": (
        facts(
            "deferred",
            now=LATER + timedelta(1),
            trigger=why.TriggerFacts(kind="time", state="waiting", due_at=LATER, since=T0),
        ),
        "deferred:time",
        "which has passed: a triggerer has yet to look",
    ),
    "deferred to an event": (
        facts(
            "deferred",
            trigger=why.TriggerFacts(
                kind="event", state="waiting", event_key="ok", since=T0, timeout_at=LATER
            ),
        ),
        "deferred:event",
        f"for somebody to send it the event 'ok'; its time limit ends at {AT_LATER}.",
    ),
    "deferred and watched": (
        facts(
            "deferred",
            wait_detail="Waits for FileTrigger('/x').",
            trigger=why.TriggerFacts(
                kind="watched", state="waiting", since=T0, watcher="h:9", is_watcher_alive=True
            ),
        ),
        "deferred:watched",
        f"Waits for FileTrigger('/x') since {AT}; triggerer h:9 watches.",
    ),
    "deferred and its triggerer is silent": (
        facts(
            "deferred",
            trigger=why.TriggerFacts(kind="watched", state="waiting", since=T0, watcher="h:9"),
        ),
        "deferred:watched",
        "triggerer h:9, which watched, is silent: another takes it over",
    ),
    "deferred and nobody watches": (
        facts("deferred", trigger=why.TriggerFacts(kind="watched", state="waiting", since=T0)),
        "deferred:watched",
        "no triggerer watches it yet",
    ),
    "deferred and fired under a freeze": (
        facts("deferred", trigger=why.TriggerFacts(kind="time", state="timed_out", since=T0)),
        "fired",
        "Its trigger timed out already; it resumes as soon as it may.",
    ),
    "deferred without its trigger": (
        facts("deferred", wait_detail="Waits for X.", wait_since=T0),
        "deferred",
        f"Waits for X since {AT}.",
    ),
    # up for retry, for reschedule
    "failed, another try follows": (
        facts("up_for_retry", attempt=ERROR, next_retry_at=LATER),
        "retry",
        f"Its code failed on host-2:77 at {AT}: OSError: disk full (try 1 of 3); the next one starts"
        f" at {AT_LATER}.",
    ),
    "its retry is due": (
        facts("up_for_retry", attempt=ERROR, next_retry_at=T0),
        "retry",
        f"the next one is due since {AT}.",
    ),
    "its retry is due and has no room": (
        facts(
            "up_for_retry",
            attempt=ERROR,
            next_retry_at=T0,
            wait_code="pool_full",
            wait_detail="It needs 1 slot.",
        ),
        "retry",
        "and waits: it needs 1 slot",
    ),
    "its retry is due and nobody decides": (
        facts("up_for_retry", attempt=ERROR, next_retry_at=T0, decider=None),
        "retry",
        "but no scheduler holds the lease of shard 3",
    ),
    "killed, another try follows": (
        facts("up_for_retry", attempt=KILLED, next_retry_at=LATER),
        "retry",
        f"Its process host-2:77 was ended from outside by SIGKILL at {AT}, without a report",
    ),
    "reached its limit, another try follows": (
        facts("up_for_retry", attempt=LIMIT, next_retry_at=LATER),
        "retry",
        "was stopped at",
    ),
    "reschedule": (
        facts("up_for_reschedule", attempt=attempt(outcome="rescheduled"), next_retry_at=LATER),
        "reschedule",
        f"It looked at {AT}, found nothing yet and asked to be run again at {AT_LATER}",
    ),
    # ended
    "success": (
        facts("success", attempt=attempt(outcome="success")),
        "success",
        f"Process host-2:77 executed it and reported success at {AT} (try 1 of 3).",
    ),
    "marked success": (facts("success"), "marked", "marked as success by hand"),
    "marked success after a failure": (facts("success", attempt=ERROR), "marked", "by hand"),
    "failed": (
        facts("failed", try_number=3, attempt=ERROR),
        "failed",
        "OSError: disk full (try 3 of 3); no other try is left.",
    ),
    "failed early": (
        facts("failed", attempt=attempt(outcome="failed", reason="ReportRefused: too big")),
        "failed",
        "ReportRefused: too big (try 1 of 3); no other try follows.",
    ),
    "failed silently": (
        facts("failed", attempt=attempt(outcome="failed", process=None)),
        "failed",
        "Its code failed on a worker at",
    ),
    "killed": (
        facts("failed", try_number=3, attempt=KILLED),
        "killed_externally",
        "ended from outside by SIGKILL",
    ),
    "reached its limit": (
        facts("failed", try_number=3, attempt=LIMIT),
        "stopped",
        "time limit of 60 s",
    ),
    "out of infrastructure budget": (
        facts("failed", attempt=LOST, infra_losses=4),
        "infrastructure_budget",
        "for the 4th time in this try; at most 3 losses are made good.",
    ),
    "terminated while it ran": (
        facts(
            "failed",
            stop_at=T0,
            stop_reason="ada terminated it: bad data",
            attempt=attempt(
                outcome="terminated",
                reason="ada terminated it: bad data. Its code ended at the exception that asked it to.",
            ),
        ),
        "terminated",
        f"ada terminated it: bad data; it ended at {AT}: its code ended at the exception that asked"
        " it to.",
    ),
    "terminated before it started": (
        facts("failed", stop_at=T0, stop_reason="ada terminated the run: wrong day"),
        "terminated",
        f"ada terminated the run: wrong day; it ended at {AT}.",
    ),
    "terminated while it was deferred": (
        facts(
            "failed",
            stop_at=T0,
            stop_reason="ada terminated it: late",
            attempt=attempt(outcome="deferred", reason="Waits for X."),
        ),
        "terminated",
        f"ada terminated it: late; it ended at {AT}.",
    ),
    "marked failed": (facts("failed"), "marked", "nothing of it had run"),
    "marked failed after a success": (
        facts("failed", attempt=attempt(outcome="success")),
        "marked",
        "its attempt says otherwise",
    ),
    "skipped with its upstream": (
        facts("skipped", upstream=[up("a", "skipped"), up("b", "success")]),
        "rule:all_success",
        "skipped since a was skipped, by its rule all_success",
    ),
    "skipped by its own code": (
        facts(
            "skipped",
            upstream=[up("a", "skipped")],
            attempt=attempt(outcome="success", reason="Skipped: nothing new", is_accepted=True),
        ),
        "skipped_itself",
        f"Process host-2:77 executed it, and its code skipped it at {AT}: nothing new",
    ),
    "skipped since nothing failed": (
        facts("skipped", rule="one_failed", upstream=[up("a", "success")]),
        "rule:one_failed",
        "nothing that it comes after failed",
    ),
    "skipped with a setup above": (
        facts(
            "skipped",
            rule="all_done",
            upstream=[up("a", "success")],
            setups=[up("make", "skipped")],
        ),
        "setup",
        "It was skipped since make was skipped, which it needs whatever its rule all_done.",
    ),
    "a teardown is skipped with its setups alone": (
        facts(
            "skipped",
            rule="all_done_setup_success",
            upstream=[up("a", "skipped"), up("m1", "skipped"), up("m2", "skipped")],
            teardown_of=["m1", "m2"],
        ),
        "rule:all_done_setup_success",
        "It was skipped since m1 and m2 were skipped, by its rule",
    ),
    "given up with a setup above": (
        facts(
            "upstream_failed",
            rule="all_done",
            upstream=[up("a", "success")],
            setups=[up("make", "failed")],
        ),
        "setup",
        "It never started: make failed, which it needs whatever its rule all_done.",
    ),
    "given up with a setup that could not start": (
        facts(
            "upstream_failed",
            upstream=[up("a", "success")],
            setups=[up("make", "upstream_failed")],
            root_causes=["b"],
        ),
        "setup",
        "It never started: make could not start after b had failed, which it needs",
    ),
    "given up with a unit": (
        facts(
            "upstream_failed",
            upstream=[up("p.a", "success")],
            units=[
                why.Unit(
                    group_id="p",
                    members=[up("p.a", "success"), up("p.b", "failed")],
                    is_given_up=True,
                )
            ],
        ),
        "group",
        "It never started: group p, which is one unit, was given up after p.b had failed.",
    ),
    "skipped by a gate": (
        facts("skipped", upstream=[up("a", "success")], barred_by=["a"]),
        "picked",
        "It was skipped since a did not let it go on.",
    ),
    "skipped since something succeeded": (
        facts("skipped", rule="all_failed", upstream=[up("a", "success")]),
        "rule:all_failed",
        "its rule all_failed asks for something else than a (success).",
    ),
    "not yet picked": (
        facts("none", rule="one_success", upstream=[up("a", "success")], undecided_by=["gate"]),
        "picked",
        "It waits for gate, which may skip it.",
    ),
    "marked skipped": (facts("skipped"), "marked", "marked as skipped by hand"),
    "its upstream failed": (
        facts("upstream_failed", upstream=[up("a", "failed"), up("b", "success")]),
        "upstream:all_success",
        "It never started: a failed, and by its rule all_success it does not run then.",
    ),
    "something before its upstream failed": (
        facts("upstream_failed", upstream=[up("c", "upstream_failed")], root_causes=["a", "b"]),
        "upstream:all_success",
        "It never started: c could not start after a and b had failed",
    ),
    "its upstream was given up": (
        facts("upstream_failed", upstream=[up("c", "upstream_failed")]),
        "upstream:all_success",
        "c could not start either",
    ),
    "deadlock": (facts("upstream_failed"), "deadlock", "would have waited for ever"),
    "removed": (
        facts("removed", version=4),
        "removed_from_flow",
        "task load is not in version 4 that its run executes.",
    ),
    "removed, with its reason": (
        facts("removed", filter_reason="Task load is not in version 5."),
        "removed_from_flow",
        "task load is not in version 5.",
    ),
    "a state of another version": (facts("dreaming"), "unknown_state", "'dreaming' is none that"),
    # frozen
    "frozen": (
        facts(
            "queued",
            freeze=why.Freeze(
                scope="task instance", number=7, actor="ada", reason="look first", since=T0
            ),
            attempt=attempt(state="issued"),
            queue_workers=1,
        ),
        "frozen",
        f"It is frozen by ada since {AT} (freeze 7), until it is thawed: look first; beneath: its"
        " message waits in queue default",
    ),
    "its run is frozen for a while": (
        facts("none", freeze=why.Freeze(scope="run", since=T0, until=LATER)),
        "frozen",
        f"Its run is frozen since {AT}, until {AT_LATER}; beneath: it has no upstream",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_sentence_names_what_happened_and_by_which_rule(case: str) -> None:
    given_facts, rule, part = CASES[case]
    told = why.explain(given_facts)
    assert part in told.sentence
    assert told.rule == rule
    assert told.sentence.endswith((".", "?", "!"))
    assert told.sentence[0].isupper() or told.sentence.startswith("ada ")
    assert "None" not in told.sentence


def test_every_state_is_among_the_cases_and_no_two_cases_say_the_same() -> None:
    assert {one.state for one, _, _ in CASES.values()} >= {state.value for state in TaskState}
    sentences = [why.explain(one).sentence for one, _, _ in CASES.values()]
    assert len(set(sentences)) == len(sentences)


def test_a_freeze_says_nothing_of_what_has_ended() -> None:
    told = why.explain(facts("success", freeze=why.Freeze(scope="run", since=T0)))
    assert told.rule == "marked"


TEXT = st.none() | st.text(max_size=40)
MOMENT = st.none() | st.just(T0)


@given(
    state=st.sampled_from([*TaskState, "dreaming"]),
    rule=st.sampled_from(["all_success", "all_done", "one_failed", "none_failed", "of the future"]),
    attempt_facts=st.none()
    | st.builds(
        why.AttemptFacts,
        id=st.just("a"),
        state=st.sampled_from(["issued", "running", "ended"]),
        outcome=st.none() | st.sampled_from([*AttemptOutcome]),
        reason=TEXT,
        error=TEXT,
        process=TEXT,
        issued_at=MOMENT,
        published_at=MOMENT,
        started_at=MOMENT,
        heartbeat_at=MOMENT,
        ended_at=MOMENT,
        is_silent=st.booleans(),
        signal=TEXT,
        event_code=TEXT,
    ),
    trigger=st.none()
    | st.builds(
        why.TriggerFacts,
        kind=st.sampled_from(["time", "event", "watched", "other"]),
        state=st.sampled_from(["waiting", "fired", "cancelled"]),
        event_key=TEXT,
        due_at=MOMENT,
        timeout_at=MOMENT,
        since=MOMENT,
        watcher=TEXT,
    ),
    upstream=st.lists(
        st.builds(
            why.Upstream,
            task_id=st.text(min_size=1, max_size=5),
            state=st.sampled_from([*TaskState]),
            number=st.integers(1, 9),
        ),
        max_size=6,
    ),
    stop=st.booleans(),
    wait_code=st.none() | st.sampled_from(["pool_full", "run_limit", "queue_full", "new_code"]),
    wait_detail=st.none() | st.from_regex(r"[A-Z][a-z ]{20,40}\.", fullmatch=True),
    losses=st.integers(0, 200),
    decider=TEXT,
)
def test_whatever_is_missing_there_is_a_sentence(
    state: str,
    rule: str,
    attempt_facts: why.AttemptFacts | None,
    trigger: why.TriggerFacts | None,
    upstream: list[why.Upstream],
    stop: bool,
    wait_code: str | None,
    wait_detail: str | None,
    losses: int,
    decider: str | None,
) -> None:
    told = why.explain(
        facts(
            state,
            rule=rule,
            attempt=attempt_facts,
            trigger=trigger,
            upstream=upstream,
            stop_at=T0 if stop else None,
            stop_reason="ada terminated it: r" if stop else None,
            wait_code=wait_code,
            wait_detail=wait_detail,
            infra_losses=losses,
            decider=decider,
        )
    )
    assert told.rule
    assert len(told.sentence) > 20


def test_a_summary_says_what_its_length_waits_for() -> None:
    waits = why.explain(
        facts(
            "none", upstream=[why.Upstream(task_id="paths", state="running")], maps_over=["paths"]
        )
    )
    assert waits.rule == "upstream:all_success"
    assert waits.sentence.endswith(
        "Then it is expanded into an instance for each element of paths."
    )
    ended = [why.Upstream(task_id="paths", state="success")]
    about_to = why.explain(facts("none", upstream=ended, maps_over=["paths"]))
    assert about_to.rule == "expansion"
    assert "as soon as it is known how many elements paths left" in about_to.sentence
    assert "batches" in why.explain(facts("none", maps_over=[])).sentence


def test_a_summary_that_was_mapped_over_nothing_says_so() -> None:
    told = why.explain(
        facts("skipped", maps_over=["paths"], stop_reason="What it maps over is empty.")
    )
    assert told == why.Why(
        rule="mapped_over_nothing",
        sentence="It was mapped over nothing, and so skipped: what it maps over is empty.",
    )
    failed = why.explain(
        facts("upstream_failed", maps_over=["paths"], stop_reason="paths left no list to map over.")
    )
    assert failed == why.Why(
        rule="not_expanded", sentence="It never started: paths left no list to map over."
    )
