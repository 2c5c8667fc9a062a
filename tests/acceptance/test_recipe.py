"""A failed run that clears itself, as a how-to for Airflow describes it: callbacks, REST, a counter.

Real callbacks on a worker ask a real web process; nothing of the flow knows Daylight but its imports.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.stack import PASSWORD, wait_for

if TYPE_CHECKING:
    from tests.stack import Stack

RECIPE = """
import json, time, urllib.error, urllib.request
from pathlib import Path
from scheduler_app.authoring import Variable, flow, task

URL = "{url}"
FOLDER = Path("{folder}")
MAX_ATTEMPTS = 2


def _post(path, body, token=None):
    request = urllib.request.Request(URL + path, data=json.dumps(body).encode(), method="POST")
    request.add_header("Content-Type", "application/json")
    if token:
        request.add_header("Authorization", f"Bearer {{token}}")
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def _token():
    login = {{"username": Variable.get("api_user"), "password": Variable.get("api_password")}}
    token = _post("/auth/token", login)["access_token"]
    Variable.set("api_token", token, secret=True)
    print("a new token", token)
    return token


def _clear(dag_id, run_id):
    path = f"/api/v2/dags/{{dag_id}}/dagRuns/{{run_id}}/clear"
    body = {{"dry_run": False, "only_failed": True}}
    token = Variable.get("api_token", default=None) or _token()
    try:
        return _post(path, body, token)
    except urllib.error.HTTPError as error:
        if error.code != 401:
            raise
        print("the token has run out:", error.read().decode())
        return _post(path, body, _token())


def clear_failed_run(context):
    dag_run = context["dag_run"]
    counter = f"clear_attempts__{{dag_run.dag_id}}__{{dag_run.run_id}}"
    attempts = Variable.increment(counter)
    if attempts > MAX_ATTEMPTS:
        print(f"gave up after {{MAX_ATTEMPTS}} attempts")
        return
    answer = _clear(dag_run.dag_id, dag_run.run_id)
    print("cleared", answer["dag_run_id"], "attempt", attempts)


def clean_up(context):
    dag_run = context["dag_run"]
    counter = f"clear_attempts__{{dag_run.dag_id}}__{{dag_run.run_id}}"
    print("counter gone:", Variable.delete(counter))


def _tried(ctx):
    file = FOLDER / f"{{ctx.run_id}}-{{ctx.task_id}}".replace(":", "-")
    with file.open("a") as tries:
        tries.write("x")
    return file.stat().st_size


@task
def left(ctx):
    if _tried(ctx) <= ctx.conf["failures"]:
        raise RuntimeError("left is not ready")

@task
def right(ctx):
    if _tried(ctx) <= ctx.conf["failures"]:
        raise RuntimeError("right is not ready")

@task
def join(ctx, one, other):
    return "joined"

@flow(on_failure_callback=clear_failed_run, on_success_callback=clean_up)
def recipe():
    join(left(), right())
"""


@pytest.fixture(scope="module")
def recipe(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Stack:
    folder: Path = tmp_path_factory.mktemp("tries")
    stack.write_flow("recipe.py", RECIPE.format(url=stack.url, folder=folder))
    for key, value in (("api_user", '"admin"'), ("api_password", f'"{PASSWORD}"')):
        secret = ["--secret"] if key == "api_password" else []
        done = stack.manage("variables", "set", key, value, "--reason", "for the recipe", *secret)
        assert done.returncode == 0, done.stdout + done.stderr
    stack.wait_for_flow("recipe")
    return stack


def _logs(stack: Stack, run: dict[str, Any]) -> list[str]:
    """What each callback of the run printed, oldest first."""
    rows = stack.rows(
        "SELECT string_agg(convert_from(c.data, 'UTF8'), '' ORDER BY c.start_offset) AS log"
        " FROM attempt p JOIN attempt_log_chunk c ON c.attempt_id = p.id"
        " WHERE p.run_id = %s AND p.kind = 'callback' GROUP BY p.id ORDER BY p.id",
        run["id"],
    )
    return [row["log"] for row in rows]


def _counter(stack: Stack, run: dict[str, Any]) -> Any:
    row = stack.row(
        "SELECT value FROM variable WHERE key = %s", f"clear_attempts__recipe__{run['run_id']}"
    )
    return None if row is None else row["value"]


def _states(stack: Stack, run: dict[str, Any]) -> list[tuple[str, int]]:
    rows = stack.rows(
        "SELECT task_id, try_number FROM task_instance WHERE run_id = %s ORDER BY task_id",
        run["id"],
    )
    return [(row["task_id"], row["try_number"]) for row in rows]


def test_two_branches_that_fail_at_once_clear_the_run_once_each_time(recipe: Stack) -> None:
    """It fails twice, is cleared twice, succeeds, and its counter is gone."""
    run = recipe.trigger("recipe", conf={"failures": 2})
    wait_for(
        "the run succeeds",
        lambda: recipe.row(
            "SELECT 1 AS one FROM run WHERE id = %s AND state = 'success'", run["id"]
        ),
        within_s=120,
    )
    wait_for("the counter is gone", lambda: _counter(recipe, run) is None, within_s=60)
    assert _states(recipe, run) == [("join", 1), ("left", 3), ("right", 3)]
    logs = wait_for("three callbacks", lambda: len(_logs(recipe, run)) == 3 and _logs(recipe, run))
    assert "attempt 1" in logs[0]
    assert "attempt 2" in logs[1]
    assert "counter gone: True" in logs[2]
    changes = recipe.rows(
        "SELECT action, after, actor FROM variable_change WHERE key LIKE %s ORDER BY id",
        f"%{run['run_id']}",
    )
    assert [(c["action"], c["after"]) for c in changes] == [
        ("created", 1),
        ("changed", 2),
        ("deleted", None),
    ]
    assert changes[0]["actor"] == "failure callback of recipe"
    history = recipe.rows(
        "SELECT number, state FROM run_attempt WHERE run_id = %s ORDER BY number", run["id"]
    )
    assert [(one["number"], one["state"]) for one in history] == [
        (1, "failed"),
        (2, "failed"),
        (3, "success"),
    ]
    recipe.assert_nothing_hidden()


def test_at_the_cap_it_gives_up(recipe: Stack) -> None:
    run = recipe.trigger("recipe", conf={"failures": 99})
    logs = wait_for(
        "it gives up",
        lambda: any("gave up" in log for log in _logs(recipe, run)) and _logs(recipe, run),
        within_s=120,
    )
    assert len(logs) == 3
    assert _counter(recipe, run) == 3
    assert _states(recipe, run) == [("join", 0), ("left", 3), ("right", 3)]
    row = recipe.row("SELECT state FROM run WHERE id = %s", run["id"])
    assert row is not None
    assert row["state"] == "failed"


def test_a_token_that_has_run_out_is_told_and_replaced(recipe: Stack) -> None:
    """The first clear keeps a token; when the next one uses it, it has run out."""
    kept = recipe.trigger("recipe", conf={"failures": 1})
    wait_for(
        "the run succeeds",
        lambda: recipe.row(
            "SELECT 1 AS one FROM run WHERE id = %s AND state = 'success'", kept["id"]
        ),
        within_s=120,
    )
    recipe.rows(
        "UPDATE api_token SET expires_at = clock_timestamp() - interval '1 second' RETURNING id"
    )
    recipe._token = ""  # the test's own has run out, too
    run = recipe.trigger("recipe", conf={"failures": 1})
    wait_for(
        "the run succeeds",
        lambda: recipe.row(
            "SELECT 1 AS one FROM run WHERE id = %s AND state = 'success'", run["id"]
        ),
        within_s=120,
    )
    first = _logs(recipe, run)[0]
    assert 'the token has run out: {"detail":"Token Expired"}' in first
    assert "a new token" in first
    assert "cleared" in first
    token = recipe.row("SELECT value, sealed FROM variable WHERE key = 'api_token'")
    assert token is not None
    assert token["value"] is None
    printed = first.split("a new token ")[1].split("\n")[0]
    assert set(printed) == {"*"}, "the token is a secret, and masked in the log"
