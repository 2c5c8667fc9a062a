"""Variables in tasks on a worker: one step each, fenced, and secrets masked in what is printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from scheduler_app.models import TaskInstance, Variable, VariableChange
from scheduler_app.operations.variables import set_variable
from scheduler_app.processes import variables as processes
from scheduler_app.worker import execute, variables
from tests.workshop import log_of

if TYPE_CHECKING:
    from scheduler_app.transitions.attempt import Message
    from tests.workshop import Workshop

SECRET = "hunter2-hunter2"
HEAD = """
import os, subprocess, sys
from scheduler_app.authoring import Superseded, Variable, VariablesOutOfReach, flow, task

"""
FLOW = """

@flow
def f():
    t()
"""


def issue(workshop: Workshop, body: str, options: str = "") -> Message:
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    return workshop.issue_one(f"{HEAD}@task({options})\ndef t(ctx):\n{lines}\n{FLOW}")


def result_of(workshop: Workshop, body: str) -> Any:
    message = issue(workshop, body)
    workshop.deliver(message)
    assert workshop.attempt(message).outcome == "success", workshop.attempt(message).error
    return workshop.attempt(message).result


def keep(key: str, value: Any, *, is_secret: bool = False) -> None:
    set_variable(key=key, value=value, is_secret=is_secret, actor="ana", reason="test")


def test_a_task_reads_writes_counts_and_deletes(workshop: Workshop) -> None:
    keep("limit", {"rows": 10})
    keep("old", 1)
    body = """
first = Variable.get("limit")
Variable.set("seen", (1, 2), description="what t saw")
counts = [Variable.increment("runs"), Variable.increment("runs", 4)]
swapped = [Variable.compare_and_set("seen", [1, 2], 0), Variable.compare_and_set("seen", (1, 2), 3)]
return [first, counts, swapped, Variable.get("seen"), Variable.delete("old"), Variable.get("old", None)]
"""
    assert result_of(workshop, body) == [{"rows": 10}, [1, 5], [False, True], 3, True, None]
    assert Variable.objects.get(key="seen").description == "what t saw"
    change = VariableChange.objects.filter(key="runs").latest("id")
    assert (change.actor, change.before, change.after) == ("task f.t", 1, 5)
    assert change.flow_id == "f"
    assert change.attempt_id is not None
    assert VariableChange.objects.get(key="old", action="deleted").before == 1


def test_the_file_of_a_flow_cannot_read_variables_while_it_is_loaded(workshop: Workshop) -> None:
    source = HEAD + "LIMIT = []\ntry:\n    Variable.get('limit')\nexcept VariablesOutOfReach:\n"
    source += "    LIMIT.append('out of reach')\n@task\ndef t(ctx):\n    return LIMIT\n" + FLOW
    message = workshop.issue_one(source)
    workshop.deliver(message)
    assert workshop.attempt(message).result == ["out of reach"]


def test_a_secret_is_sealed_at_rest_and_masked_in_every_print(workshop: Workshop) -> None:
    keep("password", SECRET, is_secret=True)
    body = """
value = Variable.get("password")
print("python", value, repr(value))
print(value, file=sys.stderr)
os.write(1, value.encode() + b"\\n")
subprocess.run(["echo", "program", value], check=True)
ctx.log.info("logged %s", value)
return len(value)
"""
    message = issue(workshop, body)
    workshop.deliver(message)
    assert workshop.attempt(message).result == len(SECRET)
    log = log_of(message)
    assert SECRET.encode() not in log
    assert log.count(b"*" * len(SECRET)) == 6
    row = Variable.objects.get(key="password")
    assert row.value is None
    assert SECRET not in str(row.sealed)


def test_a_secret_that_another_task_prints_is_masked(workshop: Workshop) -> None:
    """It came by a result, or from outside: no task here has read the variable."""
    keep("password", {"user": "ana", "word": SECRET}, is_secret=True)
    message = issue(workshop, f"print('{SECRET[:6]}' + '{SECRET[6:]}')")
    workshop.deliver(message)
    assert log_of(message) == b"*" * len(SECRET) + b"\n"


def test_a_secret_in_an_exception_is_masked(workshop: Workshop) -> None:
    keep("password", SECRET, is_secret=True)
    message = issue(workshop, "raise ValueError('no: ' + Variable.get('password'))")
    workshop.deliver(message)
    attempt = workshop.attempt(message)
    assert attempt.outcome_reason == "ValueError: no: ***"
    assert SECRET not in str(attempt.error)
    assert SECRET.encode() not in log_of(message)


def test_a_task_makes_a_secret(workshop: Workshop) -> None:
    body = f"""
Variable.set("token", "{SECRET}", secret=True)
Variable.set("token", "{SECRET}2")
print(Variable.get("token"))
"""
    message = issue(workshop, body)
    workshop.deliver(message)
    row = Variable.objects.get(key="token")
    assert (row.is_secret, row.value, row.version) == (True, None, 2)
    assert SECRET.encode() not in log_of(message)
    assert {c.after for c in VariableChange.objects.filter(key="token")} == {"***"}


def test_an_attempt_that_was_replaced_changes_no_variable(workshop: Workshop) -> None:
    keep("n", 1)
    message = issue(workshop, "Variable.set('n', 5)\nVariable.increment('n')\nreturn 1")
    claim = execute._try_claim

    def replaced(connection: Any, *rest: Any) -> Any:
        claimed = claim(connection, *rest)
        with connection.cursor() as cursor:
            cursor.execute("UPDATE task_instance SET claim_nonce = gen_random_uuid()")
        return claimed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execute, "_try_claim", replaced)
        workshop.deliver(message)
    assert Variable.objects.get(key="n").value == 1
    assert TaskInstance.objects.get(pk=message.ti_id).state == "running"


def test_an_increment_whose_answer_was_lost_counts_once(workshop: Workshop) -> None:
    write = processes.write
    asked = []

    def once_lost(connection: Any, **given: Any) -> Any:
        written = write(connection, **given)
        asked.append(1)
        return written

    transaction = psycopg.Connection.transaction
    lost: list[int] = []

    def lossy(self: Any, *args: Any, **kwargs: Any) -> Any:
        import contextlib  # noqa: PLC0415 - of the forked child

        @contextlib.contextmanager
        def block() -> Any:
            with transaction(self, *args, **kwargs) as tx:
                yield tx
            if asked and not lost:
                lost.append(1)
                raise psycopg.OperationalError("the answer was lost")

        return block()

    message = issue(workshop, "return [Variable.increment('n'), Variable.increment('n')]")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(variables, "write", once_lost)
        patch.setattr(psycopg.Connection, "transaction", lossy)
        workshop.deliver(message)
    assert workshop.attempt(message).result == [1, 2]
    assert VariableChange.objects.filter(key="n").count() == 2


def test_many_tasks_count_at_once_and_none_is_lost(workshop: Workshop) -> None:
    messages = [
        issue(workshop, "for _ in range(25):\n    Variable.increment('hits')\nreturn 1")
        for _ in range(4)
    ]
    children = [workshop.start(message) for message in messages]
    for child in children:
        child.outcome(within_s=60)
    assert Variable.objects.get(key="hits").value == 100
    assert Variable.objects.get(key="hits").version == 100
