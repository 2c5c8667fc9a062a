"""A run executes the version it was created with, whatever becomes of its files meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.stack import wait_for

if TYPE_CHECKING:
    from tests.stack import Stack

HELPER = "WORD = {word!r}\n"
FLOW = """
    import time
    from pathlib import Path
    from scheduler_app.authoring import flow, task

    @task
    def first(ctx):
        from pinned_helper import WORD
        # Waits until the test has changed the files.
        while not Path(ctx.conf["gate"]).exists():
            time.sleep(0.05)
        return WORD

    @task
    def second(before):
        from pinned_helper import WORD
        return [before, WORD]

    @flow
    def pinned():
        second(first())
"""


def test_a_helper_that_changes_mid_run_changes_the_next_run_only(stack: Stack) -> None:
    gate = stack.folder / "gate"
    (stack.flows / "pinned_helper.py").write_text(HELPER.format(word="old"))
    stack.write_flow("pinned.py", FLOW)
    stack.wait_for_flow("pinned")
    run = stack.trigger("pinned", conf={"gate": str(gate)})
    wait_for("the first task runs", lambda: [a for a in stack.attempts(run) if a["started_at"]])
    (stack.flows / "pinned_helper.py").write_text(HELPER.format(word="new word"))
    stack.wait_for_flow("pinned", version=2)
    gate.touch()
    assert stack.wait_for_run(run)["state"] == "success"
    assert stack.attempts(run)[-1]["result"] == ["old", "old"]
    later = stack.trigger("pinned", conf={"gate": str(gate)})
    stack.wait_for_run(later)
    assert stack.attempts(later)[-1]["result"] == ["new word", "new word"]
    stack.assert_nothing_hidden()


def test_files_that_vanish_mid_run_do_not_stop_it(stack: Stack) -> None:
    gate = stack.folder / "gate-of-the-second"
    (stack.flows / "vanishing_helper.py").write_text(HELPER.format(word="kept"))
    stack.write_flow("vanishing.py", FLOW.replace("pinned", "vanishing"))
    wait_for(
        "a version with this helper",
        lambda: stack.row(
            "SELECT 1 AS one FROM flow WHERE flow_id = 'vanishing' AND removed_at IS NULL"
        ),
    )
    run = stack.trigger("vanishing", conf={"gate": str(gate)})
    wait_for("the first task runs", lambda: [a for a in stack.attempts(run) if a["started_at"]])
    for name in ("vanishing.py", "vanishing_helper.py"):
        (stack.flows / name).unlink()
    wait_for(
        "the flow is removed",
        lambda: stack.row(
            "SELECT 1 AS one FROM flow WHERE flow_id = 'vanishing' AND removed_at IS NOT NULL"
        ),
    )
    gate.touch()
    assert stack.wait_for_run(run)["state"] == "success"
    stack.assert_nothing_hidden()
