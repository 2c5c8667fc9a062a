"""Mapped tasks by real processes: made, mapped, one tried again, collected in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.stack import Stack

FLAGS = ["--no-examples", "--concurrency", "2"]
ENVIRONMENT = {"DAYLIGHT_MAX_MAP_LENGTH": "60"}
SOURCE = """
from scheduler_app.authoring import flow, group, task, zip_

@task
def rows():
    return {f"r{n:02}": n for n in range(50)}

@task(map_label="{row[0]}", retries=1, retry_delay=0.1)
def doubled(ctx, row, by):
    name, n = row
    if n == 7 and ctx.try_number == 1:
        raise OSError("not now")
    return None if n == 8 else [ctx.map_index, name, n * by]

@task
def total(found):
    return {"count": len(found), "sum": sum(n for *_, n in found), "first": found[0][1]}

@task
def negative(ctx, one):
    return -one[2]

@group
def chain(pair):
    @task
    def joined(pair):
        return "".join(pair)

    @task
    def told(ctx, text):
        return [text, ctx.results["chain.joined"], ctx.pull("doubled")[0][1]]

    return told(joined(pair))

@task
def letters():
    return ("a", "b", "c")

@task
def gathered(chains, negatives):
    return {"chains": chains, "sum": sum(negatives)}

@flow
def maps():
    found = doubled.partial(by=2).map(rows())
    of_chain = chain.map(zip_(letters(), ["x", "y"]))
    found >> of_chain
    total(found)
    gathered(of_chain, negative.map(found))

@task
def long():
    return list(range(61))

@task
def text():
    return "abc"

@task
def each(x): ...

@flow
def too_much():
    each.map(long())
    each.map(text())
"""


def test_a_result_is_mapped_collected_and_mapped_again(stack: Stack) -> None:
    stack.write_flow("maps.py", SOURCE)
    stack.wait_for_flow("maps")
    run = stack.trigger("maps")
    assert stack.wait_for_run(run, within_s=120)["state"] == "success"
    tis = stack.rows(
        "SELECT map_index, map_label, try_number, state FROM task_instance"
        " WHERE run_id = %s AND task_id = 'doubled' ORDER BY map_index",
        run["id"],
    )
    assert [(one["map_index"], one["map_label"]) for one in tis] == [
        (n, f"r{n:02}") for n in range(50)
    ]
    assert [one["map_index"] for one in tis if one["try_number"] == 2] == [7]
    results = {
        one["task_id"]: one["result"]
        for one in stack.attempts(run)
        if one["outcome"] == "success" and one["map_index"] == -1
    }
    wanted = 2 * (sum(range(50)) - 8)
    assert results["total"] == {"count": 49, "sum": wanted, "first": "r00"}
    assert results["gathered"] == {
        "chains": [["ax", "ax", "r00"], ["by", "by", "r00"]],
        "sum": -wanted,
    }
    negatives = stack.rows(
        "SELECT map_index FROM task_instance WHERE run_id = %s AND task_id = 'negative'", run["id"]
    )
    assert len(negatives) == 49, "what returned nothing is left out"


def test_what_cannot_be_mapped_over_fails_the_attempt_that_returned_it(stack: Stack) -> None:
    stack.write_flow("maps.py", SOURCE)
    stack.wait_for_flow("too_much")
    run = stack.trigger("too_much")
    assert stack.wait_for_run(run, within_s=60)["state"] == "failed"
    reasons = {one["task_id"]: one["outcome_reason"] for one in stack.attempts(run)}
    assert set(reasons) == {"long", "text"}
    assert "list of 61 elements" in reasons["long"]
    assert "the limit is 60" in reasons["long"]
    assert "type str of length 3" in reasons["text"]
