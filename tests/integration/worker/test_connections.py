"""Connections in tasks on a worker: opened there, and masked in what is printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler_app.operations.connections import set_connection
from tests.workshop import log_of

if TYPE_CHECKING:
    from tests.workshop import Workshop

SECRET = "hunter2-hunter2"
HEAD = """
from scheduler_app.authoring import Connection, ConnectionsOutOfReach, NoSuchConnection, flow, task

"""
FLOW = "\n@flow\ndef f():\n    t()\n"


def result_of(workshop: Workshop, body: str) -> tuple[Any, bytes]:
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    message = workshop.issue_one(f"{HEAD}@task\ndef t(ctx):\n{lines}\n{FLOW}")
    workshop.deliver(message)
    assert workshop.attempt(message).outcome == "success", workshop.attempt(message).error
    return workshop.attempt(message).result, log_of(message)


def test_a_task_opens_a_connection_and_prints_nothing_of_it(workshop: Workshop) -> None:
    set_connection(
        connection_id="warehouse",
        actor="ana",
        reason="test",
        conn_type="postgres",
        host="db",
        login="etl",
        port=5432,
        schema="sales",
        password=SECRET,
        extra={"sslmode": "require", "token": "tok-0123456789"},
    )
    result, log = result_of(
        workshop,
        """
found = Connection.get("warehouse")
print(found, found.password, found.uri(), found.extra)
return [len(found.password), found.host, found.port, found.extra["sslmode"]]
""",
    )
    assert result == [len(SECRET), "db", 5432, "require"]
    assert SECRET.encode() not in log
    assert b"tok-0123456789" not in log
    assert b"sslmode=require" in log
    assert b"postgres://etl:" in log


def test_one_that_there_is_not_is_a_key_error(workshop: Workshop) -> None:
    result, _ = result_of(
        workshop,
        """
try:
    Connection.get("nowhere")
except KeyError as error:
    return str(error)
""",
    )
    assert result == "There is no connection 'nowhere'. Create it: manage.py connections."


def test_a_flow_file_cannot_open_one_while_it_is_loaded(workshop: Workshop) -> None:
    source = (
        HEAD + "SAID = []\ntry:\n    Connection.get('a')\nexcept ConnectionsOutOfReach as error:\n"
    )
    source += "    SAID.append('out of reach')\n@task\ndef t(ctx):\n    return SAID\n" + FLOW
    message = workshop.issue_one(source)
    workshop.deliver(message)
    assert workshop.attempt(message).result == ["out of reach"]
