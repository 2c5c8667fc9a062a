"""A child executes siblings in a row: what the next one needs comes with its claim, and is never stale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from psycopg.types.json import Jsonb

from scheduler_app import sql
from scheduler_app.models import Attempt, TaskInstance
from scheduler_app.processes import database
from scheduler_app.rules import values
from scheduler_app.transitions.attempt import Claim, Near
from scheduler_app.transitions.ids import uuid7
from scheduler_app.worker import execute, items
from scheduler_app.worker.child import child

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import psycopg

    from scheduler_app.transitions.attempt import Message
    from tests.workshop import Workshop

HEAD = "from scheduler_app.authoring import flow, task\n"


def _refuse(*_: object, **__: object) -> Any:
    raise AssertionError("asked for by a statement of its own")


def _say(task_id: str, result: str) -> None:
    """The task's accepted result is another now, whatever the child remembers."""
    with database.connect("worker", name="test") as connection:
        connection.execute(
            "UPDATE attempt SET result = %s::jsonb WHERE task_id = %s", [result, task_id]
        )


def _execute(workshop: Workshop, messages: Sequence[Message]) -> None:
    for message in messages:
        execute.execute_delivery(
            str(message.attempt_id),
            message.ti_id,
            message.fence,
            message.lease_token,
            workshop.identity,
        )


def _in_one_child(
    workshop: Workshop, messages: Sequence[Message], between: Callable[[], None]
) -> None:
    """All but the first two are executed by the same child, after ``between``, without a look of their own."""
    patch = pytest.MonkeyPatch()

    def body() -> None:
        for place, message in enumerate(messages):
            if place == 2:
                between()
                patch.setattr(execute, "seen_results", _refuse)
                patch.setattr(items, "_row", _refuse)
            _execute(workshop, [message])

    workshop.fork(body).outcome()


def _results(messages: Sequence[Message]) -> list[Any]:
    return [values.decode(Attempt.objects.get(pk=one.attempt_id).result) for one in messages]


SIBLINGS = ("t", "t__1", "t__2", "t__3")
FAN = f"""{HEAD}
@task
def first():
    return 1

@task
def nothing():
    pass

@task
def t(value, none):
    return [value, none]

@flow
def f():
    begun, none = first(), nothing()
    for _ in range(5):
        t(begun, none)
"""


def test_siblings_get_the_results_of_their_upstream_with_their_claims(workshop: Workshop) -> None:
    run_id = workshop.run(workshop.flow(FAN))
    for task_id in ("first", "nothing"):
        workshop.deliver(workshop.issue(run_id, task_id))
    messages = [workshop.issue(run_id, task_id) for task_id in SIBLINGS]
    _in_one_child(workshop, messages, lambda: _say("first", "2"))
    assert _results(messages) == [[1, None], [1, None], [2, None], [2, None]]


def test_a_task_of_another_run_gets_that_runs_results(workshop: Workshop) -> None:
    version = workshop.flow(FAN)
    runs = [workshop.run(version) for _ in range(2)]
    for run_id in runs:
        for task_id in ("first", "nothing"):
            workshop.deliver(workshop.issue(run_id, task_id))
    Attempt.objects.filter(run_id=runs[1], task_id="first").update(result=7)
    messages = [workshop.issue(run_id, task_id) for run_id in runs for task_id in SIBLINGS]

    workshop.fork(lambda: _execute(workshop, messages)).outcome()
    assert _results(messages) == [[1, None]] * 4 + [[7, None]] * 4


def test_what_has_not_succeeded_any_more_comes_as_nothing(workshop: Workshop) -> None:
    run_id = workshop.run(workshop.flow(FAN))
    for task_id in ("first", "nothing"):
        workshop.deliver(workshop.issue(run_id, task_id))
    messages = [workshop.issue(run_id, task_id) for task_id in SIBLINGS]

    def fail() -> None:
        with database.connect("worker", name="test") as connection:
            connection.execute("UPDATE task_instance SET state = 'failed' WHERE task_id = 'first'")

    _in_one_child(workshop, messages, fail)
    assert _results(messages) == [[1, None], [1, None], [None, None], [None, None]]


def test_a_large_result_is_asked_for_alone(workshop: Workshop) -> None:
    source = FAN.replace("return 1", "return [str(n) * 7 for n in range(3000)]").replace(
        "return [value, none]", "return len(value)"
    )
    run_id = workshop.run(workshop.flow(source))
    for task_id in ("first", "nothing"):
        workshop.deliver(workshop.issue(run_id, task_id))
    messages = [workshop.issue(run_id, task_id) for task_id in SIBLINGS]

    workshop.fork(lambda: _execute(workshop, messages)).outcome()
    assert _results(messages) == [3000] * 4


def test_no_statement_of_a_child_is_planned_anew(workshop: Workshop) -> None:
    run_id = workshop.run(workshop.flow(FAN))
    for task_id in ("first", "nothing"):
        workshop.deliver(workshop.issue(run_id, task_id))
    messages = [workshop.issue(run_id, task_id) for task_id in SIBLINGS]

    def body() -> list[Any]:
        _execute(workshop, messages)
        return child().link.once(
            lambda connection: connection.execute(
                "SELECT generic_plans > 0, custom_plans FROM pg_prepared_statements"
                " WHERE statement LIKE '%%near_results%%' AND statement NOT LIKE %s",
                ["%pg_prepared%"],
            ).fetchall()
        )

    plans: Any = workshop.fork(body).outcome()
    assert plans == [(True, 0)]


NEARS = (
    None,
    Near(run_id=1, task_ids=("a",)),
    Near(run_id=1, item_ids=("a",)),
    Near(run_id=1, task_ids=("a",), item_ids=("b",)),
    Near(needs={"a": ("b",)}),
)


@pytest.mark.parametrize("near", NEARS)
def test_the_columns_of_a_claim_are_its_fields_in_their_order(
    raw: psycopg.Connection[Any], near: Near | None
) -> None:
    asked = sql.load("claim_attempt")
    if near is not None:
        asked = sql.bringing(
            asked,
            results=bool(near.task_ids),
            items=bool(near.item_ids),
            by_task=bool(near.needs),
        )
    ids = dict.fromkeys(("attempt", "nonce", "worker"), uuid4())
    numbers = {"ti": 0, "token": 0, "fence": 0, "pid": 0, "near_run": 0}
    lists = {"near_tasks": ["a"], "near_items": ["b"], "near_needs": Jsonb({})}
    given = {**ids, **numbers, **lists, "hostname": "h", "with_callbacks": False}
    with raw.cursor() as cursor:
        cursor.execute(asked, given)
        assert cursor.description is not None
        names = [column.name for column in cursor.description]
    assert tuple(names) == Claim._fields[: len(names)]
    assert len(names) >= len(Claim._fields) - len(Claim._field_defaults)


MAPPED = f"""{HEAD}
@task
def numbers():
    return [10, 20, (1, 2), None]

@task
def each(number):
    return [number]

@flow
def f():
    each.map(number=numbers())
"""


def _expanded(workshop: Workshop, run_id: int, number: int = 4) -> list[Message]:
    """So many instances, as the scheduler makes them, seen from the worker."""
    row = TaskInstance.objects.get(run_id=run_id, task_id="each")
    for index in range(number):
        row.pk, row.map_index = None, index
        row.save(force_insert=True)
    return [workshop.issue(run_id, "each", map_index=index) for index in range(number)]


def test_mapped_siblings_get_their_own_elements_with_their_claims(workshop: Workshop) -> None:
    run_id = workshop.run(workshop.flow(MAPPED))
    workshop.deliver(workshop.issue(run_id, "numbers"))
    messages = _expanded(workshop, run_id)
    _in_one_child(workshop, messages, lambda: None)
    assert _results(messages) == [[10], [20], [(1, 2)], [None]]


@pytest.mark.parametrize(
    ("returned", "elements"),
    [
        ('{"a": 1, "b": 2, "c": 3, "d": 4}', [("a", 1), ("b", 2), ("c", 3), ("d", 4)]),
        ("(1, 2, 3, 4)", [1, 2, 3, 4]),
    ],
)
def test_elements_of_what_is_no_plain_list_are_looked_up(
    workshop: Workshop, returned: str, elements: list[Any]
) -> None:
    source = MAPPED.replace("[10, 20, (1, 2), None]", returned)
    run_id = workshop.run(workshop.flow(source))
    workshop.deliver(workshop.issue(run_id, "numbers"))
    messages = _expanded(workshop, run_id)
    workshop.fork(lambda: _execute(workshop, messages)).outcome()
    assert _results(messages) == [[one] for one in elements]


@pytest.mark.parametrize(
    ("returned", "elements"),
    [
        ("[[str(n**9), n] for n in range(1000)]", [[str(n**9), n] for n in range(6)]),
        ("tuple(str(n**9) for n in range(1000))", [str(n**9) for n in range(6)]),
        ("{f'k{n}': str(n**9) for n in range(1000)}", [(f"k{n}", str(n**9)) for n in range(6)]),
    ],
)
def test_a_large_list_is_read_once_by_a_child_for_all_its_elements(
    workshop: Workshop, returned: str, elements: list[Any]
) -> None:
    run_id = workshop.run(workshop.flow(MAPPED.replace("[10, 20, (1, 2), None]", returned)))
    workshop.deliver(workshop.issue(run_id, "numbers"))
    messages = _expanded(workshop, run_id, 6)
    patch = pytest.MonkeyPatch()

    def body() -> None:
        _execute(workshop, messages[:3])
        patch.setattr(items, "_row", _refuse)
        _execute(workshop, messages[3:])

    workshop.fork(body).outcome()
    assert _results(messages) == [[one] for one in elements]


def test_a_large_list_that_was_made_anew_is_read_anew(workshop: Workshop) -> None:
    returned = "[str(n**9) for n in range(1000)]"
    run_id = workshop.run(workshop.flow(MAPPED.replace("[10, 20, (1, 2), None]", returned)))
    workshop.deliver(workshop.issue(run_id, "numbers"))
    messages = _expanded(workshop, run_id, 6)
    old = Attempt.objects.get(run_id=run_id, task_id="numbers")
    new = Attempt.objects.get(pk=old.pk)
    new.pk, new.try_number, new.result = uuid7(), 2, [str(-(n**9)) for n in range(1000)]
    new.fence = None
    new.filter_code, new.filtered_at, new.filter_detail = "superseded_by_clear", old.ended_at, {}
    new.save(force_insert=True)

    def body() -> None:
        _execute(workshop, messages[:4])
        with database.connect("worker", name="test") as connection, connection.transaction():
            move = "UPDATE attempt SET (filter_code, filtered_at, filter_detail)"
            connection.execute(
                f"{move} = ('superseded_by_clear', now(), '{{}}') WHERE id = %s", [old.pk]
            )
            connection.execute(f"{move} = (NULL, NULL, NULL) WHERE id = %s", [new.pk])
            connection.execute(
                "UPDATE task_instance SET attempt_id = %s WHERE id = %s", [new.pk, new.ti_id]
            )
        _execute(workshop, messages[4:])

    workshop.fork(body).outcome()
    assert _results(messages) == [[str(n**9 if n < 4 else -(n**9))] for n in range(6)]


def test_a_list_that_became_something_else_breaks_no_claim(workshop: Workshop) -> None:
    run_id = workshop.run(workshop.flow(MAPPED))
    workshop.deliver(workshop.issue(run_id, "numbers"))
    messages = _expanded(workshop, run_id)

    def body() -> None:
        _execute(workshop, messages[:2])
        _say("numbers", '{"a": 1}')
        _execute(workshop, messages[2:3])

    workshop.fork(body).outcome()
    assert [Attempt.objects.get(pk=one.attempt_id).state for one in messages[:3]] == ["ended"] * 3


CHAIN = f"""{HEAD}
@task
def a():
    return [1]

@task
def b(value):
    return [*value, 2]

@task
def c(value):
    return [*value, 3]

@flow
def f():
    c(b(a()))
"""


def test_a_task_of_another_run_gets_what_it_needed_in_the_last_one_with_its_claim(
    workshop: Workshop,
) -> None:
    version = workshop.flow(CHAIN)
    runs = [workshop.run(version) for _ in range(2)]

    messages = [workshop.issue(run_id, task_id) for run_id in runs for task_id in "abc"]

    def body() -> None:
        _execute(workshop, messages[:3])
        pytest.MonkeyPatch().setattr(execute, "seen_results", _refuse)
        _execute(workshop, messages[3:])

    workshop.fork(body).outcome()
    assert _results(messages) == [[1], [1, 2], [1, 2, 3]] * 2


def test_what_a_task_of_another_flow_needs_is_asked_for(workshop: Workshop) -> None:
    other = CHAIN.replace("def f():", "def g():").replace("c(b(a()))", "b(c(a()))")
    runs = [workshop.run(workshop.flow(source)) for source in (CHAIN, other, CHAIN)]
    orders = ["abc", "acb", "abc"]
    messages = [
        workshop.issue(run_id, task_id)
        for run_id, order in zip(runs, orders, strict=True)
        for task_id in order
    ]
    workshop.fork(lambda: _execute(workshop, messages)).outcome()
    assert _results(messages) == [
        [1],
        [1, 2],
        [1, 2, 3],
        [1],
        [1, 3],
        [1, 3, 2],
        [1],
        [1, 2],
        [1, 2, 3],
    ]
