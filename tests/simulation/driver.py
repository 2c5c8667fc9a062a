"""The swarm: a world for each seed, a random part of all faults, a list of actions, a healing phase.

An action is a name and a number from which it takes every choice it has to make. So a list of
actions means the same each time it is played, and still means something with some of them left out.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from scheduler_app.rules.definition import TaskDefinition, TriggerRule
from scheduler_app.rules.states import RUN_TERMINAL
from tests.simulation.invariants import Invariants
from tests.simulation.state import Broken, Setup
from tests.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DRAWS: Final = 1200  # of one world, before it heals; about one in five finds something to do
AFTERMATH: Final = 8  # once the run is over, a draw counts as so many
NUMBER_MAX: Final = (1 << 40) - 1
HEALING_ROUNDS_MAX: Final = 120
RETRY_DELAY_S: Final = 7.0
WEIGHTS: Final[dict[str, int]] = {
    # what goes on when nothing is wrong
    "wait": 16,
    "acquire": 16,
    "renew": 6,
    "release": 1,
    "tick": 40,
    "publish": 32,
    "note": 12,
    "publish_unpublished": 12,
    "republish": 16,
    "deliver": 40,
    "claim": 24,
    "work": 24,
    "report": 24,
    "witness": 24,
    "beat": 6,
    "judge": 24,
    "lose": 16,
    "watch": 16,
    "fire": 16,
    "fire_due": 16,
    "tell": 2,
    "drain": 1,
    "send_leftover": 16,
    "resume_worker": 6,
    "thaw": 8,
    "go_on": 12,
    # what goes wrong
    "leap": 4,
    "kill_child": 4,
    "exit_silently": 4,
    "kill_worker": 3,
    "pause_worker": 3,
    "kill_scheduler": 2,
    "double_message": 4,
    "drop_message": 4,
    "flush_carrier": 1,
    "forge_message": 1,
    "fire_again": 4,
    "freeze": 3,
    "echo_event": 4,
    "ghost_event": 1,
    "restart_database": 1,
}
FACTORS: Final = (1, 2, 2, 4)  # no two worlds have the same habits
FAULTS: Final = (*list(WEIGHTS)[list(WEIGHTS).index("leap") :], "drain", "release", "tell")
# Faults that are no action: they change how others end.
WAYS: Final = ("stall", "lose_answers", "abort")
# Actions of the healing phase, in the order in which they are tried, and what goes by itself.
HEALING: Final = (
    "acquire",
    "renew",
    "go_on",
    "resume_worker",
    "thaw",
    "fire",
    "fire_due",
    "watch",
    "tell",
    "tick",
    "publish",
    "note",
    "publish_unpublished",
    "deliver",
    "claim",
    "work",
    "report",
    "witness",
    "send_leftover",
    "beat",
    "lose",
    "republish",
)


class Action(NamedTuple):
    """One step: what is done, and the number that it takes its choices from."""

    name: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What became of the world of a seed."""

    seed: int
    steps: int
    actions: list[Action]  # those that found something to do, before it healed
    message: str | None  # the promise that was broken; null: none was


def setup_of(seed: int) -> Setup:
    """The world of this seed."""
    rng = random.Random(f"{seed} setup")
    count = rng.choice((1, 2, 2, 3, 3))
    retries = rng.choice((0, 1, 1))
    chance = rng.choice((0.15, 0.3, 0.5, 0.7))
    names = ("a", "b", "c")[:count]
    tasks = tuple(
        TaskDefinition(
            task_id=name,
            upstream=tuple(above for above in names[:place] if rng.random() < 0.6),
            trigger_rule=rng.choice(_RULES) if place else TriggerRule.ALL_SUCCESS,
            retries=retries,
            retry_delay_s=RETRY_DELAY_S,
        )
        for place, name in enumerate(names)
    )
    return Setup(
        tasks=tasks,
        deferring=tuple(rng.choice(_DEFERRING) for _ in names),
        slots=rng.randint(1, count),
        budget=rng.choice((0, 1, 3)),
        is_unique=seed % 2 == 0,
        faults=frozenset(fault for fault in (*FAULTS, *WAYS) if rng.random() < chance),
    )


_RULES: Final = (TriggerRule.ALL_SUCCESS, TriggerRule.ALL_SUCCESS, *TriggerRule)
_DEFERRING: Final = (None, None, None, "watched", "time", "event")


def play(seed: int, *, world_class: type[World] = World) -> Played:
    """The world of this seed lives and heals."""
    setup = setup_of(seed)
    player = Player(world_class(setup))
    actions: list[Action] = []
    message = None
    try:
        player.live(random.Random(seed), setup.faults, actions)
        player.heal()
    except Broken as broken:
        message = str(broken)
    return Played(seed=seed, steps=player.steps, actions=actions, message=message)


def replay(
    setup: Setup, actions: Sequence[Action], *, world_class: type[World] = World
) -> str | None:
    """These actions in a world of this set-up, and its healing: what broke."""
    player = Player(world_class(setup))
    try:
        for action in actions:
            player.step(action)
        player.heal()
    except Broken as broken:
        return str(broken)
    return None


class Player:
    """A world with its invariants."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.invariants = Invariants(world)
        self.steps = 0
        self._methods: dict[str, Callable[[int], bool]] = {
            name: getattr(world, name) for name in WEIGHTS
        }

    def step(self, action: Action) -> bool:
        """Whether there was anything to do. Raises ``Broken``."""
        if not self._methods[action.name](action.number):
            return False
        self.invariants.check()
        self.steps += 1
        return True

    def live(self, rng: random.Random, faults: frozenset[str], done: list[Action]) -> None:
        """Actions in a random order; what was done is noted in ``done``. Raises ``Broken``."""
        table = [
            (name, self._methods[name])
            for name, weight in WEIGHTS.items()
            if name not in FAULTS or name in faults
            for _ in range(weight * rng.choice(FACTORS))
        ]
        count = len(table)
        draw = rng.getrandbits
        check = self.invariants.check
        run = self.world.db.run
        idle: set[str] = set()  # found nothing to do, and nothing has happened since
        left = DRAWS
        while left > 0:
            left -= AFTERMATH if run.state in RUN_TERMINAL else 1
            number = draw(56)
            name, method = table[(number >> 40) % count]
            if name in idle:
                continue
            number &= NUMBER_MAX
            try:
                if not method(number):
                    idle.add(name)
                    continue
                idle.clear()
                done.append(Action(name, number))
                check()
            except Broken:
                if not done or done[-1] != (name, number):
                    done.append(Action(name, number))
                raise
            self.steps += 1

    def heal(self) -> None:
        """No more faults: everything ends within a bound. Raises ``Broken``."""
        world = self.world
        world.may_stall = world.may_lose_answers = world.may_abort = False
        for _ in range(HEALING_ROUNDS_MAX):
            for name in HEALING:
                for place in range(3):
                    # Numbers by which everybody has a turn and user code succeeds.
                    self.step(Action(name, place | 1 << 20))
            for first in range(len(self.world.db.pending)):
                for place in range(3):
                    self.step(Action("judge", place | first << 24))
            if self._is_over():
                break
            self.step(Action("wait", 4))
        self.invariants.check_all()
        self.invariants.check_over()

    def _is_over(self) -> bool:
        world = self.world
        return (
            world.db.is_run_over()
            and not world.db.pending
            and not world.children
            and not world.leftovers
            and not world.bag
            and not any(worker.exits for worker in world.workers)
        )
