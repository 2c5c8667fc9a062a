"""The protocol, simulated: no promise is broken in so many steps, whatever goes wrong."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Final

import pytest

from scheduler_app.rules.states import AttemptOutcome, TaskState
from tests.simulation.driver import WAYS, WEIGHTS, Player, play, replay, setup_of
from tests.simulation.shrink import told
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.rows import Row

STEPS: Final = int(os.environ.get("SIMULATION_STEPS", "400000"))
FIRST_SEED: Final = int(os.environ.get("SIMULATION_SEED", "0"))
# Why attempts and events are set aside in such a world; the other codes need an operator, another
# version of the flow or another database.
CODES: Final = frozenset(
    {
        "superseded_by_retry",
        "superseded_by_resume",
        "lost_worker",
        "ghost_no_record",
        "stale_after_defer",
        "stale_superseded",
        "late_after_terminal",
        "duplicate_delivery",
        "refused_superseded",
        "refused_frozen",
        "fenced_stale_leader",
    }
)
# By a clear, or by another version of the flow.
NEVER: Final = frozenset({TaskState.RESTARTING, TaskState.REMOVED})


def test_no_promise_is_broken_and_every_world_heals() -> None:
    steps, seed = 0, FIRST_SEED
    while steps < STEPS:
        played = play(seed)
        if played.message is not None:
            pytest.fail(told(played))
        steps += played.steps
        seed += 1


def test_a_seed_is_always_the_same_world() -> None:
    for seed in range(20):
        assert play(seed) == play(seed)


def test_actions_played_again_lead_to_the_same_rows() -> None:
    for seed in range(20):
        setup = setup_of(seed)
        first, second = (Player(World(setup)) for _ in range(2))
        actions = play(seed).actions
        for action in actions:
            assert first.step(action), "an action of the list found nothing to do"
            second.step(action)
        assert _rows(first.world) == _rows(second.world)
        assert replay(setup, actions) is None


def _rows(world: World) -> list[object]:
    db = world.db
    rows: list[Row] = [db.lease, db.run, *db.tis, *db.attempts.values(), *db.triggers, *db.events]
    return [row.values() for row in rows]


def test_everything_that_can_happen_happens() -> None:
    """A simulation that never meets a state proves nothing about it."""
    seen: Counter[str] = Counter()
    for seed in range(400):
        setup = setup_of(seed)
        seen.update(setup.faults)
        player = Player(World(setup))
        for action in play(seed).actions:
            player.step(action)
            seen[action.name] += 1
            seen.update({f"task {ti.state}" for ti in player.world.db.tis})
        player.heal()
        seen.update(_met(player.world))
    expected = {
        *WEIGHTS,
        *WAYS,
        *(f"task {state}" for state in TaskState if state not in NEVER),
        *(f"outcome {outcome}" for outcome in AttemptOutcome),
        *(f"code {code}" for code in CODES),
        *(f"trigger {state}" for state in ("fired", "failed", "timed_out")),
    }
    assert expected - set(seen) == set()


def _met(world: World) -> set[str]:
    db = world.db
    return {
        *(f"outcome {p.outcome}" for p in db.attempts.values()),
        *(f"code {p.filter_code}" for p in db.attempts.values()),
        *(f"code {event.code}" for event in db.events),
        *(f"trigger {g.state}" for g in db.triggers),
    }
