"""Which tasks are in a group, for lists that are narrowed to one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler_app.models import Flow, FlowVersion, Run
from scheduler_app.rules import ties
from scheduler_app.rules.definition import from_dict

if TYPE_CHECKING:
    from collections.abc import Sequence


def tasks_of(
    group_ids: Sequence[str], *, run: Sequence[int], flow_id: Sequence[str]
) -> frozenset[str]:
    """The ids of the tasks in these groups: as these runs execute their flows, or as they are now."""
    versions = FlowVersion.objects.all()
    if run:
        versions = versions.filter(pk__in=Run.objects.filter(pk__in=run).values("version_id"))
    else:
        current = Flow.objects.filter(flow_id__in=flow_id).values("current_version_id")
        versions = versions.filter(pk__in=current)
    found: set[str] = set()
    for raw in versions.values_list("definition", flat=True):
        definition = from_dict(raw)
        for group_id in group_ids:
            found.update(ties.members(definition, group_id))
    return frozenset(found)
