"""Which flows name notifiers for their incidents."""

from __future__ import annotations

from typing import Any

from scheduler_app.models import Flow


def flows_with_notifiers() -> list[tuple[str, dict[str, Any]]]:
    """Each notifier that a flow's current version names, under ``flow <id>``; removed flows not."""
    rows = (
        Flow.objects.filter(removed_at=None, current_version__definition__has_key="alerts")
        .order_by("flow_id")
        .values_list("flow_id", "current_version__definition__alerts")
    )
    return [(f"flow {flow_id}", told) for flow_id, alerts in rows for told in alerts]
