"""Watch one world: ``python -m tests.simulation SEED [--mutant NAME] [--shrunk]``."""

from __future__ import annotations

import argparse
import contextlib

from tests.simulation import mutants
from tests.simulation.driver import Action, Player, play, setup_of
from tests.simulation.shrink import shrink
from tests.simulation.state import Broken
from tests.simulation.world import World


def main() -> None:
    """The world of the seed, one line an action, and what broke."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("seed", type=int)
    parser.add_argument("--mutant", default="World", help="a class of tests/simulation/mutants.py")
    parser.add_argument("--shrunk", action="store_true", help="only the actions that matter")
    options = parser.parse_args()
    world_class: type[World] = getattr(mutants, options.mutant)
    setup = setup_of(options.seed)
    print(setup)
    played = play(options.seed, world_class=world_class)
    actions = played.actions
    if played.message is not None and options.shrunk:
        actions = shrink(setup, actions, world_class=world_class)
    watch(Player(world_class(setup)), actions)
    print(played.message or "No promise was broken.")


def watch(player: Player, actions: list[Action]) -> None:
    """Each action and the world after it."""
    for action in actions:
        with contextlib.suppress(Broken):
            player.step(action)
        print(f"{action.name:20} {action.number:#12x}  {line(player.world)}")


def line(world: World) -> str:
    """The world in one line."""
    db = world.db
    tasks = " ".join(
        f"{ti.id}:{ti.state}{'*' if ti.held else ''}"
        f"({ti.try_number}.{ti.resume_index}.{ti.dispatch_no} #{ti.attempt_id})"
        for ti in db.tis
    )
    live = " ".join(f"#{p.id}:{p.state}" for p in db.live.values())
    return (
        f"{db.now:7.1f} s  lease {db.lease.holder}/{db.lease.token}  run {db.run.state}  {tasks}"
        f"  live [{live}]  bag {len(world.bag)}  children {len(world.children)}"
        f"  pending {len(db.pending)}"
    )


if __name__ == "__main__":
    main()
