"""The fewest actions that still break the promise: delta debugging over a list of actions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.simulation.driver import Action, Played, replay, setup_of
from tests.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.simulation.state import Setup

MASKS: Final = (
    0,
    0xFF,
    0xFFFF,
    0xFFFFFF,
)  # an action's number is cut down to these bits if it can be


def shrink(
    setup: Setup, actions: Sequence[Action], *, world_class: type[World] = World
) -> list[Action]:
    """A list that breaks the same promise, and from which no action can be left out."""
    kind = _kind(replay(setup, actions, world_class=world_class))

    def breaks(tried: Sequence[Action]) -> bool:
        return _kind(replay(setup, tried, world_class=world_class)) == kind

    return plainest(smallest(actions, breaks), breaks)


def smallest(actions: Sequence[Action], breaks: Callable[[Sequence[Action]], bool]) -> list[Action]:
    """Chunks are left out, halved in size each time none can be, down to single actions."""
    left = list(actions)
    size = max(1, len(left) // 2)
    while True:
        place, is_smaller = 0, False
        while place < len(left):
            without = left[:place] + left[place + size :]
            if breaks(without):
                left, is_smaller = without, True
            else:
                place += size
        if size > 1:
            size //= 2
        elif not is_smaller:
            return left


def plainest(actions: list[Action], breaks: Callable[[Sequence[Action]], bool]) -> list[Action]:
    """The same actions with numbers as small as they can be."""
    for place, action in enumerate(actions):
        for mask in MASKS:
            plainer = action._replace(number=action.number & mask)
            tried = [*actions[:place], plainer, *actions[place + 1 :]]
            if breaks(tried):
                actions = tried
                break
    return actions


def told(played: Played, *, world_class: type[World] = World) -> str:
    """What to say when a seed fails: the promise, the seed, the shrunk list, how to see it again."""
    setup = setup_of(played.seed)
    actions = shrink(setup, played.actions, world_class=world_class)
    lines = "\n".join(f"    Action({one.name!r}, {one.number:#x})," for one in actions)
    return (
        f"seed {played.seed}: {played.message}\n"
        f"{len(actions)} of its {len(played.actions)} actions are enough:\n{lines}\n"
        f"in {setup}\n"
        f"Watch it: python -m tests.simulation {played.seed}"
    )


def _kind(message: str | None) -> str | None:
    """The promise that was broken, without the ids: ``P3``, ``I16``, ..."""
    return None if message is None else message.split(":", 1)[0]
