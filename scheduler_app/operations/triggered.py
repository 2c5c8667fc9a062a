"""What becomes of runs that task instances triggered, when those are ended, marked or begin anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db.models import Q

from scheduler_app.models import Run, TriggeredRun

if TYPE_CHECKING:
    from collections.abc import Sequence


def what_becomes(ti_ids: Sequence[int], *, succeed: bool = False) -> dict[int, str]:
    """By task instance, a sentence for each run that it triggered and that goes on so far.

    ``succeed``: the task instances are to count as successful, which ends no run.
    """
    links = TriggeredRun.objects.filter(ti_id__in=ti_ids).values_list(
        "ti_id", "run_id", "on_stop", "is_watched"
    )
    # One that its policy begins again has not ended.
    going = Q(is_active=True) | Q(retry_at__isnull=False)
    found = Run.objects.filter(going, pk__in={run_id for _, run_id, *_ in links})
    names = {
        pk: f"Run {key} of flow {flow}"
        for pk, key, flow in found.values_list("id", "run_key", "flow_id")
    }
    told: dict[int, list[str]] = {}
    for ti_id, run_id, on_stop, is_watched in links:
        if run_id in names:
            ends = on_stop == "terminate" and is_watched and not succeed
            what = "is terminated with it" if ends else "goes on"
            told.setdefault(ti_id, []).append(f"{names[run_id]}, which it triggered, {what}.")
    return {ti_id: " ".join(dict.fromkeys(lines)) for ti_id, lines in told.items()}
