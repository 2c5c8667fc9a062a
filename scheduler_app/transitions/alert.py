"""Alerts: which tellings of incidents are due, to whom; claimed, and what came of each try.

Anybody may plan and send: planning is idempotent by ``alert_unique``, and a claim is a compare-and-
set that counts as lost after a while. So each alert is sent at least once, whoever dies in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import class_row, dict_row
from psycopg.types.json import Jsonb

from scheduler_app.rules.incidents import About, AlertState, pause_after
from scheduler_app.transitions.incident import SETTLE_S

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    import psycopg

BATCH_MAX: Final = 200  # incidents planned in one transaction
LETTER_MAX: Final = 100  # alerts that go out as one letter
# Alerts of one sort to the same notifier that come within this after each other are one letter.
GATHER_S: Final = 60.0
CLAIM_S: Final = 180.0  # then whoever claimed an alert is taken to have died over it
SAID_MAX: Final = 20  # tries that an alert tells of
CHARACTERS_MAX: Final = 500  # of what one try came to


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedAlert:
    """One alert to be sent, with its incident as it is now. Times aware UTC."""

    id: int
    about: str
    notifier: dict[str, Any]
    tries: int  # with this one
    incident_id: int
    kind: str
    subject: str
    message: str
    raised_at: datetime
    resolved_at: datetime | None
    resolution: str
    count: int
    flow_id: str | None
    run_id: int | None  # the number


_TELL: Final = """
SELECT n.id, n.flow_id, n.told_count,
       CASE WHEN n.told_count = 0 THEN 'opened'
            WHEN n.resolved_at IS NULL THEN 'reminder' ELSE 'resolved' END AS about,
       v.definition->'alerts' AS alerts
  FROM incident n LEFT JOIN flow f ON f.flow_id = n.flow_id
  LEFT JOIN flow_version v ON v.id = f.current_version_id
 WHERE n.id IN (
   SELECT id FROM incident WHERE told_count = 0
   UNION ALL
   SELECT id FROM incident WHERE resolved_at IS NULL AND acknowledged_at IS NULL
      AND told_at < clock_timestamp() - make_interval(secs => %(remind_s)s::float8)
   UNION ALL
   SELECT id FROM incident WHERE resolved_at IS NOT NULL AND NOT is_end_told AND told_count > 0
      AND resolved_at < clock_timestamp() - make_interval(secs => %(settle_s)s::float8))
 ORDER BY n.id LIMIT %(limit)s FOR NO KEY UPDATE OF n SKIP LOCKED
"""

_PLAN: Final = """
INSERT INTO alert (incident_id, about, number, notifier_key, notifier, state, tries, due_at, said,
                   created_at)
SELECT u.incident, u.about, u.number, u.key, u.notifier, 'waiting', 0,
       clock_timestamp() + CASE WHEN EXISTS (
         SELECT 1 FROM alert a JOIN incident o ON o.id = a.incident_id
          WHERE a.notifier_key = u.key AND a.about = u.about AND o.kind = n.kind
            AND o.flow_id IS NOT DISTINCT FROM n.flow_id
            AND a.created_at > clock_timestamp() - make_interval(secs => %(gather_s)s::float8))
         THEN make_interval(secs => %(gather_s)s::float8) ELSE '0' END,
       '[]', clock_timestamp()
  FROM unnest(%(incident)s::bigint[], %(about)s::text[], %(number)s::int[], %(key)s::text[],
              %(notifier)s::jsonb[]) AS u(incident, about, number, key, notifier)
  JOIN incident n ON n.id = u.incident
ON CONFLICT (incident_id, about, number, notifier_key) DO NOTHING
"""


def due_tellings(
    connection: psycopg.Connection[Any], *, remind_after_s: float
) -> list[dict[str, Any]]:
    """Incidents that are to be told of now, locked; one dict: id, flow_id, told_count, about, alerts.

    ``alerts``: the notifiers that their flow names, or null. Part of the transaction that plans.
    """
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            _TELL, {"remind_s": remind_after_s, "settle_s": SETTLE_S, "limit": BATCH_MAX}
        )
        return cursor.fetchall()


def plan_alerts(
    connection: psycopg.Connection[Any],
    *,
    tellings: Sequence[dict[str, Any]],
    notifiers: Mapping[int, Sequence[tuple[str, dict[str, Any]]]],
) -> None:
    """Each of these incidents has an alert for each of its notifiers (key, description).

    Where there are none it counts as told all the same: it stands on the page.
    """
    rows = [
        (telling["id"], telling["about"], telling["told_count"], key, Jsonb(notifier))
        for telling in tellings
        for key, notifier in notifiers[telling["id"]]
    ]
    with connection.cursor() as cursor:
        if rows:
            incident, about, number, key, notifier = zip(*rows, strict=True)
            cursor.execute(
                _PLAN,
                {
                    "incident": list(incident),
                    "about": list(about),
                    "number": list(number),
                    "key": list(key),
                    "notifier": list(notifier),
                    "gather_s": GATHER_S,
                },
            )
        cursor.execute(
            "UPDATE incident SET told_at = clock_timestamp(), told_count = told_count + 1,"
            " is_end_told = id = ANY(%s) WHERE id = ANY(%s)",
            [
                [one["id"] for one in tellings if one["about"] == About.RESOLVED],
                [one["id"] for one in tellings],
            ],
        )


_CLAIM: Final = """
WITH first AS (
  SELECT a.notifier_key, a.about, o.kind, o.flow_id FROM alert a
    JOIN incident o ON o.id = a.incident_id
   WHERE a.ended_at IS NULL AND a.due_at <= clock_timestamp()
   ORDER BY a.due_at LIMIT 1 FOR NO KEY UPDATE OF a SKIP LOCKED),
together AS (
  SELECT a.id FROM alert a JOIN incident o ON o.id = a.incident_id, first f
   WHERE a.ended_at IS NULL AND a.due_at <= clock_timestamp() AND a.notifier_key = f.notifier_key
     AND a.about = f.about AND o.kind = f.kind AND o.flow_id IS NOT DISTINCT FROM f.flow_id
   ORDER BY a.id LIMIT %(limit)s FOR NO KEY UPDATE OF a SKIP LOCKED),
x AS (
  UPDATE alert a SET claimed_by = %(claim)s, letter = %(claim)s, tries = a.tries + 1,
         due_at = clock_timestamp() + make_interval(secs => %(claim_s)s::float8)
    FROM together t WHERE a.id = t.id RETURNING a.*)
SELECT x.id, x.about, x.notifier, x.tries, n.id AS incident_id, n.kind, n.subject, n.message,
       n.raised_at, n.resolved_at, n.resolution, n.count, n.flow_id, n.run_id
  FROM x JOIN incident n ON n.id = x.incident_id ORDER BY x.id
"""


def claim_alerts(connection: psycopg.Connection[Any], *, claim: UUID) -> list[ClaimedAlert]:
    """Alerts that go out as one letter are this claim's for a while; none: nothing is due."""
    with connection.cursor(row_factory=class_row(ClaimedAlert)) as cursor:
        cursor.execute(_CLAIM, {"claim": claim, "claim_s": CLAIM_S, "limit": LETTER_MAX})
        return cursor.fetchall()


def note_sent(
    connection: psycopg.Connection[Any], *, claim: UUID, alerts: Sequence[ClaimedAlert], said: str
) -> None:
    """These alerts are sent, if the claim is still the one that counts; ``said`` tells how."""
    _note(connection, claim, [one.id for one in alerts], said, AlertState.SENT, None)


def note_not_sent(
    connection: psycopg.Connection[Any],
    *,
    claim: UUID,
    alerts: Sequence[ClaimedAlert],
    said: str,
    may_try_again: bool,
) -> int:
    """These alerts wait for their next try, or are given up; how many were given up."""
    given_up = 0
    for alert in alerts:
        pause_s = pause_after(alert.tries) if may_try_again else None
        state = AlertState.FAILED if pause_s is None else AlertState.WAITING
        given_up += pause_s is None
        _note(connection, claim, [alert.id], said, state, pause_s)
    return given_up


def _note(
    connection: psycopg.Connection[Any],
    claim: UUID,
    alert_ids: Sequence[int],
    said: str,
    state: AlertState,
    pause_s: float | None,
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE alert SET state = %(state)s::text, claimed_by = NULL,"
            "  due_at = clock_timestamp() + make_interval(secs => %(pause_s)s::float8),"
            "  ended_at = CASE WHEN %(state)s::text <> 'waiting' THEN clock_timestamp() END,"
            "  said = CASE WHEN jsonb_array_length(said) >= %(said_max)s THEN said - 0 ELSE said END"
            "   || jsonb_build_array(jsonb_build_object('at', clock_timestamp(), 'said', %(said)s::text))"
            " WHERE id = ANY(%(alert)s) AND claimed_by = %(claim)s AND ended_at IS NULL",
            {
                "state": state.value,
                "pause_s": pause_s or 0.0,
                "said_max": SAID_MAX,
                "said": said[:CHARACTERS_MAX],
                "alert": list(alert_ids),
                "claim": claim,
            },
        )
