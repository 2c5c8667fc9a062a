"""Groups of tasks over the API, and lists that are narrowed to one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler_app.models import Flow, FlowVersion
from scheduler_app.rules.definition import GroupDefinition, GroupRetry, TaskDefinition

if TYPE_CHECKING:
    from django.test import Client

    from tests.world import World


def test_groups_of_a_run_tell_what_is_in_them_and_their_attempts(world: World, api: Client) -> None:
    tasks = (
        TaskDefinition(task_id="g.in.a", group="g.in"),
        TaskDefinition(task_id="g.b", group="g"),
        TaskDefinition(task_id="c"),
    )
    flow = world.flow(
        "f",
        tasks,
        groups=(
            GroupDefinition(group_id="g", doc="both", retry=GroupRetry(max_attempts=2)),
            GroupDefinition(group_id="g.in", parent="g"),
        ),
    )
    run_id = world.run(flow)
    world.tick(run_id)
    world.serve(failing=["g.b"])
    world.play(run_id)
    outer, inner = api.get(f"/api/v1/runs/{run_id}/groups/").json()["results"]
    assert (outer["group_id"], outer["task_ids"], outer["doc"]) == ("g", ["g.in.a", "g.b"], "both")
    assert (outer["states"], outer["state"], outer["attempts"]) == ({"success": 2}, "success", 2)
    assert [(one["number"], one["state"]) for one in outer["history"]] == [
        (2, "success"),
        (1, "failed"),
    ]
    assert (inner["parent"], inner["state"], inner["history"]) == ("g", None, [])

    def named(query: str) -> set[str]:
        answer = api.get(f"/api/v1/task-instances/?{query}").json()
        assert answer["counts"]["total"] == len(answer["results"])
        return {one["task_id"] for one in answer["results"]}

    assert named(f"run={run_id}&group=g") == {"g.in.a", "g.b"}
    assert named("flow_id=f&group=g.in") == {"g.in.a"}
    assert named("flow_id=f&group=nothing") == set()
    # Another version has other tasks in the group: what was asked before says nothing about it.
    version = FlowVersion.objects.get(flow_id="f")
    for task in version.definition["tasks"]:
        if task["task_id"] == "c":
            task["group"] = "g.in"
    version.pk, version.number, version.digest = None, 2, "another"
    version.save(force_insert=True)
    Flow.objects.filter(flow_id="f").update(current_version=version)
    assert named("flow_id=f&group=g.in") == {"g.in.a", "c"}
    refused = api.get("/api/v1/task-instances/?group=g")
    assert refused.status_code == 400
    assert "flow_id" in refused.content.decode()
