"""The model is the product: the same actions in both, and every row the same after each of them."""

from __future__ import annotations

import os
from typing import Final

import pytest
from django.test import override_settings

from scheduler_app.queries import audit_visibility
from tests.integration.simulation.clock import Clock
from tests.integration.simulation.replay import PostgresWorld, state_of
from tests.simulation.database import DEAD_AFTER_S, QUEUED_TIMEOUT_S
from tests.simulation.driver import Action, Player, play, setup_of
from tests.simulation.schedulers import GRACE_S
from tests.simulation.world import World

REPLAYS: Final = int(os.environ.get("SIMULATION_REPLAYS", "40"))
PARTS: Final = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_the_model_and_postgresql_agree_after_every_action(clock: Clock, part: int) -> None:
    for seed in range(part, REPLAYS, PARTS):
        _replay(clock, seed, heals=seed < PARTS)
        assert [row for row in audit_visibility.compare() if row.differences] == []


def _replay(clock: Clock, seed: int, *, heals: bool) -> None:
    setup = setup_of(seed)
    with override_settings(
        INFRASTRUCTURE_BUDGET=setup.budget,
        HEARTBEAT_DEAD_AFTER_S=DEAD_AFTER_S,
        QUEUED_TIMEOUT_S=QUEUED_TIMEOUT_S,
        EXIT_GRACE_S=GRACE_S,
    ):
        both = Both(World(setup), PostgresWorld(setup, clock), f"seed {seed}")
        try:
            for action in play(seed).actions:
                assert both.step(action), "an action of the list found nothing to do"
            if heals:
                both.heal()
        finally:
            both.real.db.close()


class Both(Player):
    """The model with its invariants, and beside it the same world on PostgreSQL."""

    def __init__(self, model: World, real: PostgresWorld, name: str) -> None:
        super().__init__(model)
        self.real = real
        self._name = name

    def step(self, action: Action) -> bool:
        """Whether there was anything to do; fails unless both worlds say so and are the same."""
        before = self.steps
        moved = super().step(action)
        where = f"{self._name}, step {before}: {action.name} {action.number:#x}"
        assert self._perform(action) is moved, where
        expected, found = state_of(self.world), state_of(self.real)
        for table, rows in expected.items():
            assert found[table] == rows, f"{where}: {table}"
        return moved

    def _perform(self, action: Action) -> bool:
        moved: bool = getattr(self.real, action.name)(action.number)
        return moved

    def heal(self) -> None:
        """Both heal."""
        self.real.may_stall = self.real.may_lose_answers = self.real.may_abort = False
        super().heal()
