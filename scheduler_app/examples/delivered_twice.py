"""Does its work once, though the message that asks for it is sent twice.

Carriers may deliver a message again; the first start of ``manage.py up`` really sends this one a
second time. The second delivery is refused before any code of the task runs, and stays to be seen:
an executor event with verdict *refused* and the reason *duplicate_delivery*.
"""

from __future__ import annotations

import os

import penguins  # type: ignore[import-not-found]  # found beside this file

from scheduler_app.authoring import Context, flow, task


@task
def weigh(ctx: Context) -> dict[str, int | str]:
    """The penguins are weighed together, and the file of starts has one more line."""
    starts = penguins.output_folder() / "delivered_twice.starts"
    with starts.open("a", encoding="utf-8") as lines:
        # Written first thing: a second start would leave a second line for the same run.
        lines.write(f"{ctx.run_id} attempt {ctx.attempt_id} process {os.getpid()}\n")
    masses = [mass for page in penguins.pages() for mass in penguins.masses_g(page)]
    ctx.log.info("%d penguins weigh %d kg together", len(masses), sum(masses) // 1000)
    return {"penguins": len(masses), "mass_g": sum(masses), "starts": str(starts)}


@flow(tags=["example", "deliveries"], owner="examples")
def example_delivered_twice() -> None:
    """One task, whose message comes twice and whose work is done once."""
    weigh()
