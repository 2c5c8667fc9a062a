"""Every operation on work is reached from pages, API, command line and admin, and is audited wherever from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from django.core.management import call_command

from scheduler_app.admin.read_only import ACTS
from scheduler_app.models import Audit, ClearPlan, Run, TaskInstance

if TYPE_CHECKING:
    from django.test import Client

    from tests.integration.dashboard.scene import Scene

# What each surface calls it: verb, command, more of the command line, more of the body.
OF_RUNS: Final[dict[str, tuple[str, tuple[str, ...], dict[str, Any]]]] = {
    "freeze": ("flows", ("freeze",), {}),
    "clear": ("tasks", ("clear",), {"dry_run": False}),
    "mark": ("flows", ("mark", "failed"), {"state": "failed"}),
    "terminate": ("flows", ("terminate",), {}),
}
SURFACES: Final = ("page", "api", "command line")


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("verb", OF_RUNS)
def test_each_operation_acts_from_each_surface_and_is_audited(
    scene: Scene,
    reader: Client,
    verb: str,
    surface: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Run.objects.get(pk=scene.running)
    command, words, body = OF_RUNS[verb]
    before = Audit.objects.filter(action=verb).count()
    if surface == "page":
        address = f"/runs/{run.pk}/{verb}/"
        assert reader.get(address).status_code == 200
        form: dict[str, Any] = {**body, "reason": "why not"}
        if verb == "clear":
            form["plan_id"] = ClearPlan.objects.latest("created_at").pk
        assert reader.post(address, form).status_code == 302
    elif surface == "api":
        answer = reader.post(
            f"/api/v1/runs/{run.pk}/{verb}/",
            {**body, "reason": "why not"},
            content_type="application/json",
        )
        assert answer.status_code == 200, answer.content
    else:
        monkeypatch.setenv("LOGNAME", "ana")
        call_command(command, *words, run.flow_id, run.run_key, "--reason", "why not")
    entry = Audit.objects.filter(action=verb).latest("id")
    assert Audit.objects.filter(action=verb).count() == before + 1
    assert (entry.actor, entry.reason, entry.object_kind, entry.object_id) == (
        "ana",
        "why not",
        "run",
        str(run.pk),
    )
    assert entry.before is not None
    assert entry.after is not None


def test_the_admin_offers_each_of_them_for_runs_and_task_instances() -> None:
    for model in ("scheduler_app.run", "scheduler_app.taskinstance"):
        assert {*OF_RUNS, "thaw"} <= ACTS[model].keys()


@pytest.mark.parametrize("verb", OF_RUNS)
def test_each_of_them_is_there_for_one_task_instance_too(
    scene: Scene, reader: Client, verb: str
) -> None:
    ti = TaskInstance.objects.filter(run_id=scene.running, is_open=True).latest("id")
    assert reader.get(f"/task-instances/{ti.pk}/{verb}/").status_code == 200
    body = {**OF_RUNS[verb][2], "reason": "why not"}
    if verb == "mark":
        body["state"] = "skipped"
    answer = reader.post(
        f"/api/v1/task-instances/{ti.pk}/{verb}/", body, content_type="application/json"
    )
    assert answer.status_code == 200, answer.content
