"""Weighs the penguins page by page; its first try breaks off, and its second begins where that was.

The position and the sum so far are saved in one: whichever attempt goes on, no page counts twice.
"""

from __future__ import annotations

import time
from datetime import timedelta

import penguins  # type: ignore[import-not-found]  # found beside this file

from scheduler_app.authoring import Context, flow, task

BREAKS_AT = 3  # pages that the first try gets through
PAGE_S = 0.5  # as slow as a service elsewhere; the bar on the page of the task moves


@task(retries=3, retry_delay=timedelta(seconds=2))
def weigh_pages(ctx: Context) -> dict[str, int]:
    """The mass of all penguins, each page read and added once."""
    pages = list(penguins.pages())
    start, mass_g = ctx.checkpoint.get("so_far", (0, 0))
    ctx.log.info("begins at page %d of %d", start + 1, len(pages))
    for number, page in enumerate(ctx.progress(pages[start:], done=start), start):
        if number == BREAKS_AT and ctx.try_number == 1:
            raise ConnectionError("The line broke, as lines do.")
        time.sleep(PAGE_S)
        mass_g += sum(penguins.masses_g(page))
        ctx.checkpoint.set("so_far", (number + 1, mass_g))
    return {"pages": len(pages), "begun_at": start + 1, "mass_g": mass_g}


@flow(tags=["example", "penguins"], owner="examples")
def example_resumes() -> None:
    """Reads seven pages in two tries, with a checkpoint and a bar that shows how far it is."""
    weigh_pages()
