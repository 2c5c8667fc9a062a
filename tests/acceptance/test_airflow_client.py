"""The public client of Airflow, and its own smoke test, against a real stack."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import airflow_client.client as airflow
import pytest
from airflow_client.client import models
from airflow_client.client.api import (
    config_api,
    dag_api,
    dag_run_api,
    event_log_api,
    monitor_api,
    pool_api,
    task_api,
    task_instance_api,
    variable_api,
    version_api,
    x_com_api,
)

from tests.stack import CHECKOUT, PASSWORD, wait_for

if TYPE_CHECKING:
    from tests.stack import Stack

FLOW = """
from scheduler_app.authoring import flow, task

@task
def rows(ctx):
    print("ninety rows")
    ctx.push("unit", "rows")
    return {"rows": 90}

@task
def breaks(ctx, told):
    if not ctx.conf.get("calm"):
        raise ValueError("as asked")

@flow(tags=["compat"], owner="ana")
def compat():
    breaks(rows())
"""


@pytest.fixture(scope="module")
def client(stack: Stack) -> Iterator[airflow.ApiClient]:
    """A client with a token, as its documentation makes one."""
    example = CHECKOUT / "scheduler_app" / "examples" / "simplest_dag.py"
    stack.write_flow("simplest_dag.py", Path(example).read_text(encoding="utf-8"))
    stack.write_flow("compat.py", FLOW)
    stack.wait_for_flow("example_simplest_dag")
    stack.wait_for_flow("compat")
    configuration = airflow.Configuration(host=stack.url)
    configuration.access_token = stack.api(
        "POST", "/auth/token", {"username": "admin", "password": PASSWORD}
    )["access_token"]
    with airflow.ApiClient(configuration) as made:
        yield made


def _run(client: Any, dag_id: str, **conf: Any) -> Any:
    body = models.TriggerDAGRunPostBody(
        dag_run_id=f"some_test_run_{uuid.uuid4().hex}", logical_date=None, conf=conf
    )
    run = dag_run_api.DagRunApi(client).trigger_dag_run(dag_id, body)
    return _ended(client, dag_id, run.dag_run_id)


def _ended(client: Any, dag_id: str, run_id: str) -> Any:
    def over() -> Any:
        run = dag_run_api.DagRunApi(client).get_dag_run(dag_id, run_id)
        return run if run.state in ("success", "failed") else None

    return wait_for(f"run {run_id} ends", over, within_s=60)


def test_the_clients_own_smoke_test(client: Any) -> None:
    """Flows, the tasks of one, a run of it, and a configuration that the administrator keeps."""
    dags = dag_api.DAGApi(client).get_dags()
    assert {"compat", "example_simplest_dag"} <= {dag.dag_id for dag in dags.dags}
    tasks = task_api.TaskApi(client).get_tasks("example_simplest_dag")
    assert [task.task_id for task in tasks.tasks] == ["my_task"]
    body = models.TriggerDAGRunPostBody(
        dag_run_id=f"some_test_run_{uuid.uuid4().hex}", logical_date=None
    )
    made = dag_run_api.DagRunApi(client).trigger_dag_run("example_simplest_dag", body)
    assert made.dag_run_id == body.dag_run_id
    assert _ended(client, "example_simplest_dag", made.dag_run_id).state == "success"
    with pytest.raises(airflow.OpenApiException) as refused:
        config_api.ConfigApi(client).get_config()
    assert "Your Airflow administrator chose" in str(refused.value)


def test_it_logs_in_and_looks_around_without_a_token(stack: Stack, client: Any) -> None:
    with airflow.ApiClient(airflow.Configuration(host=stack.url)) as stranger:
        assert version_api.VersionApi(stranger).get_version().version
        health = monitor_api.MonitorApi(stranger).get_health()
        assert health.metadatabase.status == "healthy"
        assert health.scheduler.status == "healthy"
        with pytest.raises(airflow.exceptions.UnauthorizedException):
            dag_api.DAGApi(stranger).get_dags()
    del client


def test_a_failed_run_is_looked_into_and_cleared(client: Any) -> None:
    run = _run(client, "compat")
    assert run.state == "failed"
    tis = task_instance_api.TaskInstanceApi(client)
    found = tis.get_task_instances("compat", run.dag_run_id, order_by=["start_date"])
    assert [(ti.task_id, ti.state) for ti in found.task_instances] == [
        ("rows", "success"),
        ("breaks", "failed"),
    ]
    log = tis.get_log("compat", run.dag_run_id, "rows", 1)
    assert "ninety rows" in log.to_json()
    xcoms = x_com_api.XComApi(client)
    listed = xcoms.get_xcom_entries("compat", run.dag_run_id, "rows")
    assert [entry.key for entry in listed.xcom_entries] == ["return_value", "unit"]
    value = xcoms.get_xcom_entry("compat", "rows", run.dag_run_id, "return_value")
    assert value.to_dict()["value"] == {"rows": 90}

    plain = dag_run_api.DagRunApi(client).clear_dag_run_without_preload_content(
        "compat", run.dag_run_id, models.DAGRunClearBody(dry_run=True, only_failed=True)
    )
    assert plain.status == 200
    cleared = dag_run_api.DagRunApi(client).clear_dag_run(
        "compat", run.dag_run_id, models.DAGRunClearBody(dry_run=False, only_failed=True)
    )
    assert cleared.actual_instance.state in ("queued", "running", "failed")
    _ended(client, "compat", run.dag_run_id)
    tried = tis.get_task_instance_tries("compat", run.dag_run_id, "breaks")
    assert [one.try_number for one in tried.task_instances] == [1, 2]
    body = models.ClearTaskInstancesBody(
        dry_run=False,
        dag_run_id=run.dag_run_id,
        task_ids=[models.ClearTaskInstancesBodyTaskIdsInner("breaks")],
    )
    took = tis.post_clear_task_instances("compat", body)
    assert took.total_entries == 1
    _ended(client, "compat", run.dag_run_id)


def test_a_run_is_waited_for_line_by_line(stack: Stack, client: Any) -> None:
    body = models.TriggerDAGRunPostBody(logical_date=None, conf={"calm": True})
    run = dag_run_api.DagRunApi(client).trigger_dag_run("compat", body)
    address = f"/api/v2/dags/compat/dagRuns/{quote(run.dag_run_id)}/wait?interval=0.2&result=rows"
    request = Request(stack.url + address)
    request.add_header("Authorization", f"Bearer {client.configuration.access_token}")
    with urlopen(request, timeout=60) as answer:
        lines = [json.loads(line) for line in answer]
    assert lines[0]["state"] in ("queued", "running")
    assert lines[-1] == {"state": "success", "results": {"rows": {"rows": 90}}}


def test_lists_are_paged_ordered_and_filtered(client: Any) -> None:
    for _ in range(3):
        _run(client, "compat", calm=True)
    runs = dag_run_api.DagRunApi(client)
    page = runs.get_dag_runs("compat", limit=2, order_by=["-id"], state=["success"])
    assert len(page.dag_runs) == 2
    assert page.total_entries >= 3
    rest = runs.get_dag_runs("~", limit=100, offset=2, state=["success"], dag_id_pattern="comp")
    assert rest.total_entries == page.total_entries
    with pytest.raises(airflow.exceptions.BadRequestException, match="Ordering with 'nonsense'"):
        runs.get_dag_runs("compat", order_by=["nonsense"])
    batch = models.DAGRunsBatchBody(dag_ids=["compat"], states=["success"])
    assert runs.get_list_dag_runs_batch("~", batch).total_entries == page.total_entries


def test_variables_and_pools_and_the_audit(client: Any) -> None:
    variables = variable_api.VariableApi(client)
    made = variables.post_variable(models.VariableBody(key="compat_limit", value={"rows": 1}))
    assert made.value == '{"rows": 1}'
    with pytest.raises(airflow.exceptions.ConflictException):
        variables.post_variable(models.VariableBody(key="compat_limit", value=2))
    changed = variables.patch_variable(
        "compat_limit", models.VariableBody(key="compat_limit", value=5)
    )
    assert changed.value == "5"
    assert variables.get_variables(variable_key_pattern="compat").total_entries == 1
    variables.delete_variable("compat_limit")
    with pytest.raises(airflow.exceptions.NotFoundException):
        variables.get_variable("compat_limit")
    pools = pool_api.PoolApi(client)
    pool = pools.post_pool(models.PoolBody(name="compat_pool", slots=3))
    assert (pool.slots, pool.open_slots) == (3, 3)
    pools.patch_pool("compat_pool", models.PoolPatchBody(slots=4))
    assert pools.get_pool("compat_pool").slots == 4
    pools.delete_pool("compat_pool")
    logs = event_log_api.EventLogApi(client).get_event_logs(event="variable.set", limit=10)
    assert logs.total_entries >= 2


def test_a_flow_is_paused_and_goes_on(client: Any) -> None:
    dags = dag_api.DAGApi(client)
    assert dags.patch_dag("compat", models.DAGPatchBody(is_paused=True)).is_paused is True
    assert dags.get_dag("compat").is_paused is True
    assert dags.get_dag_details("compat").owners == ["ana"]
    assert dags.patch_dag("compat", models.DAGPatchBody(is_paused=False)).is_paused is False
