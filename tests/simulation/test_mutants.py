"""Each broken rule is caught, within so many seeds: a checker that kills no mutant is dead."""

from __future__ import annotations

from typing import Final

import pytest

from scheduler_app.rules.definition import TaskDefinition
from tests.simulation import mutants
from tests.simulation.driver import Action, play, replay, setup_of
from tests.simulation.shrink import shrink
from tests.simulation.state import Setup
from tests.simulation.world import World

SEEDS_MAX: Final = 2_000

# Which promises or invariants the broken rule is there for.
CAUGHT_BY: Final[dict[type[World], set[str]]] = {
    mutants.EventByTry: {"I7", "I8"},
    mutants.EventByTryWidest: {"I7", "I8"},
    mutants.NoFence: {"P6"},
    mutants.FinishBlind: {"P3", "P4", "I1", "I17", "rows"},
    mutants.ClaimBlind: {"I7", "I16"},
    mutants.BlindReset: {"P4"},
    mutants.ResendNew: {"I1"},
    mutants.TerminalEarly: {"P5"},
    mutants.TrustExit: {"I17"},
    mutants.VerdictOfBefore: {"I8", "I15"},
}


@pytest.mark.parametrize("mutant", CAUGHT_BY, ids=lambda mutant: mutant.__name__)
def test_a_broken_rule_is_caught(mutant: type[World]) -> None:
    for seed in range(SEEDS_MAX):
        played = play(seed, world_class=mutant)
        if played.message is not None:
            break
    else:
        pytest.fail(f"{mutant.__name__} lived through {SEEDS_MAX} seeds")
    assert played.message.split(":")[0] in CAUGHT_BY[mutant], played.message
    assert play(seed).message is None, "the rule itself breaks nothing here"


def test_a_list_of_actions_is_shrunk_to_those_that_matter() -> None:
    played = next(
        played
        for played in (play(seed, world_class=mutants.NoFence) for seed in range(SEEDS_MAX))
        if played.message is not None
    )
    setup = setup_of(played.seed)
    left = shrink(setup, played.actions, world_class=mutants.NoFence)
    assert len(left) <= 6 < len(played.actions)
    for place in range(len(left)):
        without = left[:place] + left[place + 1 :]
        assert replay(setup, without, world_class=mutants.NoFence) is None


# -- faults that the simulation found in this product, as the shortest lists that show them ---------

ONE_TASK: Final = Setup(
    tasks=(TaskDefinition(task_id="a", retries=1, retry_delay_s=7.0),),
    deferring=(None,),
    slots=1,
    budget=3,
    is_unique=True,
    faults=frozenset(),
)
UNCLAIMED: Final = 0x0  # a delivery whose claim is not sent yet
CLAIMED: Final = 0x100001  # by another worker, at once

FOUND: Final[dict[type[World], tuple[str, list[Action]]]] = {
    # A child died with a doubled delivery; then the other delivery claimed; then the exit was judged.
    mutants.SecondDeliveryUnseen: (
        "I8",
        [
            Action("acquire", 0),
            Action("tick", 0),
            Action("publish", 0),
            Action("deliver", UNCLAIMED),
            Action("kill_child", 0),
            Action("witness", 0),
            Action("double_message", 0),
            Action("wait", 7),
            Action("deliver", CLAIMED),
            Action("judge", 0),
        ],
    ),
    # A child hung with a doubled delivery, and its worker, which was to stop it, ended the attempt.
    mutants.SecondDeliveryKilled: (
        "I8",
        [
            Action("acquire", 0),
            Action("tick", 0),
            Action("publish", 0),
            Action("double_message", 0),
            Action("deliver", UNCLAIMED),
            Action("deliver", CLAIMED),
            Action("beat", 0),
            Action("beat", 0),
            Action("wait", 7),
            Action("beat", 0),
        ],
    ),
    # The worker was gone, its attempt not silent for long enough: nothing was lost, and yet told so.
    mutants.VerdictOfBefore: (
        "I15",
        [
            Action("acquire", 0),
            Action("tick", 0),
            Action("publish", 0),
            Action("leap", 1),
            Action("deliver", 0x100000),
            Action("exit_silently", 0),
            Action("witness", 0),
            Action("wait", 7),
            Action("judge", 0),
        ],
    ),
}


@pytest.mark.parametrize("mutant", FOUND, ids=lambda mutant: mutant.__name__)
def test_a_fault_that_was_found_is_gone(mutant: type[World]) -> None:
    promise, actions = FOUND[mutant]
    message = replay(ONE_TASK, actions, world_class=mutant)
    assert message is not None
    assert message.startswith(f"{promise}:"), message
    assert replay(ONE_TASK, actions) is None
