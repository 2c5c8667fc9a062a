"""What an alert says: one incident, or several of one sort that go out as one letter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scheduler_app.authoring.letters import Letter, filled, one_line
from scheduler_app.rules import incidents, pages
from scheduler_app.rules.incidents import About

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler_app.transitions.alert import ClaimedAlert

LISTED_MAX: Final = 10  # incidents that a letter tells of one by one

_HEADS: Final = {
    About.OPENED: "Incident",
    About.REMINDER: "Still open",
    About.RESOLVED: "Over",
}


def letter_of(alerts: Sequence[ClaimedAlert], *, base: str) -> Letter:
    """The letter of these alerts, which share kind, flow and notifier; at least one."""
    first = alerts[0]
    about = About(first.about)
    title = incidents.title(first.kind)
    where = f" ({first.flow_id})" if first.flow_id else ""
    number = f"{len(alerts)} times: " if len(alerts) > 1 else ""
    usual = one_line(f"{_HEADS[about]}: {number}{title}{where}")
    is_one = len(alerts) == 1
    url = pages.incident_page(base, first.incident_id) if is_one else pages.incidents_page(base)
    lines = [_line(alert) for alert in alerts[:LISTED_MAX]]
    if len(alerts) > LISTED_MAX:
        lines.append(f"... and {len(alerts) - LISTED_MAX} more.")
    if url:
        lines.append(url)
    text = "\n".join(lines)
    told = [_facts(alert, base) for alert in alerts]
    facts: dict[str, Any] = {"kind": first.kind, "flow_id": first.flow_id, "incidents": told}
    context: dict[str, Any] = {**facts, "title": title, "url": url, "subject": usual, "text": text}
    context |= {"about": about.value, "message": first.message, "incident": told[0]}
    own = first.notifier
    return Letter(
        key=f"alert-{first.id}",
        event=f"incident.{about.value}",
        subject=one_line(filled(own["subject"], context)) if "subject" in own else usual,
        text=filled(own["text"], context) if "text" in own else text,
        url=url,
        facts=facts,
    )


def _line(alert: ClaimedAlert) -> str:
    if alert.about == About.RESOLVED:
        ended = f"{alert.resolved_at:%Y-%m-%d %H:%M:%S} UTC" if alert.resolved_at else "now"
        how = f" {alert.resolution}" if alert.resolution else ""
        return f"{alert.message} Over since {ended}.{how}"
    since = f" (since {alert.raised_at:%Y-%m-%d %H:%M:%S} UTC"
    again = f", {alert.count} times)" if alert.count > 1 else ")"
    return alert.message + since + again


def _facts(alert: ClaimedAlert, base: str) -> dict[str, Any]:
    return {
        "id": alert.incident_id,
        "kind": alert.kind,
        "subject": alert.subject,
        "message": alert.message,
        "raised_at": alert.raised_at.isoformat(),
        "resolved_at": None if alert.resolved_at is None else alert.resolved_at.isoformat(),
        "resolution": alert.resolution,
        "count": alert.count,
        "flow_id": alert.flow_id,
        "run": alert.run_id,
        "url": pages.incident_page(base, alert.incident_id),
        "run_url": pages.run_page(base, alert.run_id) if alert.run_id is not None else "",
    }
