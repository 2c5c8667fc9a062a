"""Hypothesis plays scheduler, worker, triggerer and operator on PostgreSQL, in any order.

The schedulers are the product's stations and everything is written by its transitions; messages are
doubled, delayed, dropped and reordered, processes die and stall. After each act every row is held
against the promises P1 to P6, and at the end by the product's own audit of what it shows.

The same worlds are played each time; ``SIMULATION_SEED`` makes others, ``SIMULATION_EXAMPLES`` more.
What broke a promise is shrunk and printed as a list of calls.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from scheduler_app import sql
from scheduler_app.queries import audit_visibility
from scheduler_app.rules.states import (
    RUN_TERMINAL,
    TASK_TERMINAL,
    AttemptState,
    RunState,
    TaskState,
)
from scheduler_app.scheduler import leases, tick
from scheduler_app.worker import refuse
from tests.integration.simulation.clock import Clock
from tests.integration.simulation.service_world import ServiceWorld, rows_of
from tests.simulation.driver import FAULTS, WEIGHTS, setup_of
from tests.simulation.invariants import Invariants
from tests.simulation.state import CLAIMING, EXECUTING, REPORTING, Broken

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scheduler_app.rules.run_outcome import RunDecision
    from scheduler_app.scheduler.run_views import RunView

EXAMPLES: Final = int(os.environ.get("SIMULATION_EXAMPLES", "60"))
FIRST_SEED: Final = int(os.environ.get("SIMULATION_SEED", "0"))
PARTS: Final = 5  # of the examples: no single test takes long
EXAMPLES_TO_BITE_MAX: Final = 300
STEPS: Final = 80
HEALING_ROUNDS_MAX: Final = 60
# They are always possible and seldom find something to do.
OFTEN: Final = {
    "tick": 8,
    "wait": 8,
    "renew": 2,
    "lose": 4,
    "republish": 4,
    "publish_unpublished": 4,
}
# Of these it shows in the rows alone whether there was anything to do.
STEADY: Final = frozenset(
    {"tick", "judge", "lose", "republish", "publish_unpublished", "renew", "beat"}
)
# By which user code succeeds, claims follow deliveries and reports follow the work.
WELL: Final = 1 << 20
HEALING: Final = (
    "acquire",
    "renew",
    "resume_worker",
    "thaw",
    "fire_due",
    "watch",
    "fire",
    "tell",
    "tick",
    "deliver",
    "deliver",
    "deliver",
    "claim",
    "work",
    "work",
    "work",
    "report",
    "witness",
    "witness",
    "send_leftover",
    "beat",
    "judge",
    "publish_unpublished",
    "republish",
    "lose",
)

# An action takes its choices from a number: the bits above 16 and 24 say whether the answer of the
# database gets lost (1) or the act is aborted (0), in worlds where such things happen.
# What Hypothesis tries first, 0, is when all goes well.
ENDINGS: Final = (0xF, 0xF, 0xF, 1, 1, 0)
numbers = st.builds(
    lambda number, ending: (number ^ 0xFFFFFF00) & ~0x0F0F0000 | ending << 16 | ending << 24,
    st.integers(0, (1 << 32) - 1),
    st.sampled_from(ENDINGS),
)


def is_believed(world: ServiceWorld) -> bool:
    """Whether a scheduler believes to hold the lease."""
    return any(s.token is not None for s in world.schedulers)


def is_free(world: ServiceWorld) -> bool:
    """Whether the lease can be taken."""
    lease = world.db.lease
    return lease.holder is None or (lease.expires_at or 0.0) < world.db.now


def is_issued(world: ServiceWorld) -> bool:
    """Whether an attempt waits to be claimed."""
    return any(p.state is AttemptState.ISSUED for p in world.db.live.values())


def has_child(world: ServiceWorld, phase: int) -> bool:
    """Whether a child of a worker that is not paused is in this phase."""
    return any(c.phase == phase and not c.worker.is_paused for c in world.children)


# Hypothesis prefers what stands first and last.
POSSIBLE: Final[dict[str, Callable[[ServiceWorld], bool]]] = {
    # workers
    "deliver": lambda w: bool(w.bag),
    "claim": lambda w: has_child(w, CLAIMING),
    "work": lambda w: has_child(w, EXECUTING),
    "report": lambda w: has_child(w, REPORTING),
    "beat": lambda w: bool(w.children),
    "witness": lambda w: any(worker.exits for worker in w.workers),
    "send_leftover": lambda w: bool(w.leftovers),
    "drain": lambda w: bool(w.children),
    "kill_child": lambda w: bool(w.children),
    "exit_silently": lambda w: has_child(w, EXECUTING),
    "kill_worker": lambda w: bool(w.children),
    "pause_worker": lambda w: bool(w.children),
    "resume_worker": lambda w: any(worker.is_paused for worker in w.workers),
    # triggerers
    "watch": lambda w: any(g.kind == "watched" for g in w.db.waiting_triggers()),
    "fire": lambda w: bool(w.fires),
    "fire_again": lambda w: bool(w.fires),
    "fire_due": lambda w: any(g.kind != "watched" for g in w.db.waiting_triggers()),
    "tell": lambda w: "event" in w.setup.deferring,
    # the operator
    "freeze": lambda w: not w.db.run.frozen and w.db.run.state not in RUN_TERMINAL,
    "thaw": lambda w: bool(w.truth.held) or w.db.run.frozen,
    # the carrier
    "double_message": lambda w: bool(w.messages_seen),
    "drop_message": lambda w: bool(w.bag),
    "flush_carrier": lambda w: bool(w.bag),
    "forge_message": lambda w: bool(w.messages_seen),
    # witnesses
    "echo_event": lambda w: bool(w.exits_seen),
    "ghost_event": lambda w: True,
    # time and the server
    "wait": lambda w: True,
    "leap": lambda w: True,
    "restart_database": lambda w: True,
    # schedulers
    "acquire": lambda w: any(s.token is None for s in w.schedulers) and is_free(w),
    "renew": is_believed,
    "release": is_believed,
    "publish_unpublished": lambda w: is_believed(w) and is_issued(w),
    "republish": lambda w: is_believed(w) and is_issued(w),
    "lose": lambda w: is_believed(w) and bool(w.db.live),
    "kill_scheduler": lambda w: True,
    # the reconciler
    "judge": lambda w: is_believed(w) and bool(w.db.pending),
    "tick": lambda w: is_believed(w) and w.db.run.state not in RUN_TERMINAL,
}


class ProtocolMachine(RuleBasedStateMachine):
    """One run, three schedulers, three workers, triggerers, and whoever else has a say.

    There is one rule: what is possible now, as often as in the simulation. Rules of their own would
    be switched off by the half in each world, and hardly a run would get anywhere.
    """

    clock: ClassVar[Clock]

    @initialize(number=st.integers(0, 9_999))
    def begin(self, number: int) -> None:
        """The world of the simulation's seed, with its faults."""
        self.world = ServiceWorld(setup_of(number), self.clock)
        self.promises = Invariants(self.world)
        self._idle: set[str] = set()  # found nothing to do, and nothing has happened since
        self._act("acquire", 0)

    @rule(data=st.data(), number=numbers)
    def act(self, data: st.DataObject, number: int) -> None:
        """Whoever can do something does it, or something goes wrong."""
        self._act(data.draw(st.sampled_from(self._possible())), number)

    def _possible(self) -> list[str]:
        faults = self.world.setup.faults
        return [
            name
            for name, is_possible in POSSIBLE.items()
            if name not in self._idle
            and (name not in FAULTS or name in faults)
            and is_possible(self.world)
            for _ in range(OFTEN.get(name, WEIGHTS[name]))
        ]

    def _act(self, name: str, number: int) -> None:
        before = rows_of(self.world.db)
        moved = getattr(self.world, name)(number)
        self.promises.check_all()
        if not moved or (name in STEADY and rows_of(self.world.db) == before):
            self._idle.add(name)
        else:
            self._idle.clear()

    def teardown(self) -> None:
        """No more faults: everything ends, and stands as the facts say."""
        try:
            self._heal(self.world)
        finally:
            self.world.close()

    def _heal(self, world: ServiceWorld) -> None:
        check_standing()
        world.may_abort = world.may_lose_answers = False
        for _ in range(HEALING_ROUNDS_MAX):
            for name in HEALING:
                for place in range(3):
                    getattr(world, name)(place | WELL)
            if self._is_over():
                break
            world.wait(4)
        self.promises.check_all()
        self.promises.check_over()
        check_standing()

    def _is_over(self) -> bool:
        world = self.world
        return world.db.is_run_over() and not (
            world.db.pending
            or world.children
            or world.leftovers
            or world.bag
            or any(worker.exits for worker in world.workers)
        )


def check_standing() -> None:
    """Whatever is set aside says why, and nothing else is set aside. Raises ``Broken``."""
    wrong = [row for row in audit_visibility.compare() if row.differences]
    if wrong:
        raise Broken(f"P2: the audit finds {wrong}")


def play(clock: Clock, *, first_seed: int, examples: int, phases: Sequence[Phase]) -> None:
    """So many worlds are played; raises what broke in one of them."""
    machine = seed(first_seed)(type("Machine", (ProtocolMachine,), {"clock": clock}))
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            phases=phases,
            print_blob=True,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("part", range(PARTS))
def test_no_order_of_acts_breaks_a_promise(clock: Clock, part: int) -> None:
    play(
        clock,
        first_seed=FIRST_SEED * PARTS + part,
        examples=math.ceil(EXAMPLES / PARTS),
        phases=(Phase.generate, Phase.shrink),
    )


# -- the machine bites ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A guard taken out of the product, and the promises or invariants that must notice."""

    breaks: Callable[[pytest.MonkeyPatch], None]
    caught_by: frozenset[str]


def without(
    guard: str, instead: str = "", *, statements: tuple[str, ...]
) -> Callable[[pytest.MonkeyPatch], None]:
    """The statements have lost this guard."""
    load = sql.load

    def load_broken(name: str) -> str:
        text = load(name)
        return text.replace(guard, instead) if name in statements else text

    def take_out(patch: pytest.MonkeyPatch) -> None:
        for name in statements:
            assert guard in load(name), f"{name} has changed: the mutant would break nothing"
        patch.setattr(sql, "load", load_broken)

    return take_out


def ends_early(patch: pytest.MonkeyPatch) -> None:
    """Who ends a run forgets that a deferred task is not over."""
    decide = tick._decision

    def decide_early(view: RunView) -> RunDecision:
        decision = decide(view)
        states = {instance.state for instance in view.instances.values()}
        over = states <= TASK_TERMINAL | {TaskState.DEFERRED} and not decision.marks
        return replace(decision, state=RunState.SUCCESS) if over else decision

    guard = (
        "AND NOT EXISTS (SELECT 1 FROM task_instance t"
        " WHERE t.run_id = u.id AND t.is_open OFFSET 0)"
    )
    without(guard, statements=("end_runs",))(patch)
    patch.setattr(tick, "_decision", decide_early)


MUTANTS: Final[dict[str, Mutant]] = {
    "a refusal leaves no row": Mutant(
        breaks=lambda patch: patch.setattr(refuse, "record_events", lambda *_, **__: 0),
        caught_by=frozenset({"P1"}),
    ),
    "names the wrong reason": Mutant(
        breaks=without(
            "WHEN p.cleared IS NULL THEN t.cause",
            "WHEN p.cleared IS NULL THEN 'lost_worker'",
            statements=("dispatch_attempts",),
        ),
        caught_by=frozenset({"P2"}),
    ),
    "claims twice": Mutant(
        breaks=without(
            "(state = 'queued' OR (state = 'running' AND claim_nonce = %(nonce)s))",
            "state IN ('queued', 'running')",
            statements=("claim_attempt",),
        ),
        caught_by=frozenset({"I16"}),
    ),
    "accepts whatever is reported": Mutant(
        breaks=without(
            "AND attempt_id = %(attempt)s AND claim_nonce = %(nonce)s AND state = 'running'",
            statements=("finish_attempt", "defer_attempt"),
        ),
        caught_by=frozenset({"P2", "P3", "P4", "I7", "I17", "rows"}),
    ),
    "ends early": Mutant(breaks=ends_early, caught_by=frozenset({"P5"})),
    "nobody proves": Mutant(
        breaks=lambda patch: patch.setattr(leases, "prove", lambda *_, **__: None),
        caught_by=frozenset({"P6"}),
    ),
    "resumes as if it had not waited": Mutant(
        breaks=without(
            "resume_index = i.resume_index + 1",
            "resume_index = i.resume_index",
            statements=("fire_triggers",),
        ),
        caught_by=frozenset({"P2", "P3", "I16"}),
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_guard_that_is_missing_is_noticed(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    mutant = MUTANTS[name]
    mutant.breaks(monkeypatch)
    with pytest.raises(Broken) as broken:
        play(clock, first_seed=0, examples=EXAMPLES_TO_BITE_MAX, phases=(Phase.generate,))
    assert str(broken.value).split(":")[0] in mutant.caught_by, broken.value
