"""Incidents: what a person must know of, who was told, and the sheet that says it is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from django.urls import reverse

from dashboard import acts, answer, listing
from scheduler_app.operations.acknowledge_incident import acknowledge_incident
from scheduler_app.queries import alerts, incidents, runs
from scheduler_app.queries.filters import AlertFilter, IncidentFilter
from scheduler_app.queries.list_filter import LIMIT_MAX
from scheduler_app.rules.errors import NotFound

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from dashboard.answer import Reading
    from scheduler_app.queries.runs import RunRow

FIELDS: Final = ("state", "kind", "flow_id", "subject", "raised_at_gte", "raised_at_lte")


@answer.page
def incident_list(request: HttpRequest) -> HttpResponse:
    """Incidents, newest first; of any state unless the address says."""
    reading = answer.begin(request)
    context = {
        "list": listing.read(
            request, reading, IncidentFilter, incidents.page, noun="incidents", fields=FIELDS
        )
    }
    return answer.answer(
        request, "dashboard/incident_list.html", reading, context, topics=["incidents"]
    )


@answer.page
def incident_detail(request: HttpRequest, incident: int) -> HttpResponse:
    """One incident, and what each alert of it came to."""
    reading = answer.begin(request)
    row = incidents.one(reading.scope, incident)
    asked = AlertFilter(incident=(row.id,), order="id", limit=LIMIT_MAX)
    context = {
        "incident": row,
        "alerts": alerts.page(asked, reading.scope),
        "run_of": _run(reading, row.run),
    }
    return answer.answer(
        request, "dashboard/incident_detail.html", reading, context, topics=["incidents"]
    )


@answer.sheet
def incident_acknowledge(request: HttpRequest, incident: int) -> HttpResponse:
    """What acknowledging does; posted with a reason, it is done."""
    reading = answer.begin(request)
    row = incidents.one(reading.scope, incident)

    def sheet() -> acts.Sheet:
        effects = ["Its reminders stop, and it counts no more in the top bar."]
        effects.append(
            "It is over then: nothing but a person's word ends this kind."
            if row.ends_by_hand
            else "It stays on this page, and is over once its condition is; that is told all the same."
        )
        return acts.Sheet(
            title=f"Acknowledge: {row.title}",
            button="Acknowledge this incident",
            effects=[row.message, *effects],
        )

    def act(reason: str) -> str:
        acknowledge_incident(incident_id=incident, actor=request.user.get_username(), reason=reason)
        return f"Incident {incident} is acknowledged."

    back = reverse("dashboard:incident_detail", args=[incident])
    return acts.answer_sheet(request, reading, sheet=sheet, act=act, back=back)


def _run(reading: Reading, run: int | None) -> RunRow | None:
    """The run that it is about, if it is still there."""
    if run is None:
        return None
    try:
        return runs.one(reading.scope, run)
    except NotFound:
        return None
