"""Note that a person has looked at filtered records and ghosts, and what they made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.db import connection, transaction

from scheduler_app.hints.notices import Notices
from scheduler_app.models import Ghost, Record, Reviewed
from scheduler_app.models.record import with_keys
from scheduler_app.operations.reasons import check_reason
from scheduler_app.rules.errors import Conflict, InvalidInput, NotFound
from scheduler_app.rules.visibility import GHOST
from scheduler_app.transitions.audit import record_audit
from scheduler_app.transitions.reviewed import mark_reviewed as mark
from scheduler_app.transitions.reviewed import unmark_reviewed as unmark

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

KEYS_MAX: Final = 200  # of one act

_notices = Notices(settings.CACHE_URL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One record, and what becomes of its mark."""

    key: str
    name: str  # noun and id, as sentences say it
    state: str  # whether it is reviewed
    effect: str  # a sentence
    flow_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewedPlan:
    """What marking, or taking the marks back, does or would do."""

    included: tuple[Subject, ...]
    excluded: tuple[Subject, ...]
    dry_run: bool


def mark_reviewed(
    *, keys: Sequence[str], actor: str, reason: str = "", dry_run: bool = False
) -> ReviewedPlan:
    """Each record is reviewed by ``actor``, with the reason as its note; its standing stays.

    A key is noun and id, such as ``attempt:0198...`` or ``ghost:12``. A dry run changes nothing,
    needs no reason and is not audited. Raises ``InvalidInput``, ``NotFound``, and ``Conflict`` for a
    current record: only what was set aside is reviewed, and ghosts.
    """
    why = "" if dry_run else check_reason(reason)
    with transaction.atomic():
        found = _read(keys)
        for one in found:
            if not one["is_aside"]:
                raise Conflict(f"{one['name']} is current: there is nothing to review about it.")
        included = tuple(
            _subject(one, _was(one) or "It is marked as reviewed; its standing stays as it is.")
            for one in found
        )
        plan = ReviewedPlan(included=included, excluded=(), dry_run=dry_run)
        if dry_run:
            return plan
        mark(connection.connection, keys=[one.key for one in included], actor=actor, note=why)
        _audit("mark_reviewed", found, actor=actor, reason=why, after={"by": actor, "note": why})
    return plan


def unmark_reviewed(
    *, keys: Sequence[str], actor: str, reason: str = "", dry_run: bool = False
) -> ReviewedPlan:
    """None of the records is reviewed any more; the audit keeps who had marked them, and their notes.

    Raises as ``mark_reviewed``.
    """
    why = "" if dry_run else check_reason(reason)
    with transaction.atomic():
        found = _read(keys)
        marked = [one for one in found if one["before"]]
        plan = ReviewedPlan(
            included=tuple(_subject(one, _was(one)) for one in marked),
            excluded=tuple(
                _subject(one, "It is not marked as reviewed.") for one in found if not one["before"]
            ),
            dry_run=dry_run,
        )
        if dry_run or not marked:
            return plan
        unmark(connection.connection, keys=[one["key"] for one in marked])
        _audit("unmark_reviewed", marked, actor=actor, reason=why, after=None)
    return plan


def _read(keys: Sequence[str]) -> list[dict[str, Any]]:
    wanted = sorted({*keys})
    if not 1 <= len(wanted) <= KEYS_MAX:
        raise InvalidInput(f"keys: name 1 to {KEYS_MAX} records, not {len(wanted)}.", field="keys")
    ghosts = [key for key in wanted if key.startswith(f"{GHOST}:")]
    found = {**_records(key for key in wanted if key not in ghosts), **_ghosts(ghosts)}
    missing = [key for key in wanted if key not in found]
    if missing:
        raise NotFound(f"There is no record {missing[0][:80]!r}.", field="keys")
    for mark_row in Reviewed.objects.select_for_update().filter(key__in=wanted):
        found[mark_row.key]["before"] = {
            "by": mark_row.actor,
            "note": mark_row.note,
            "at": mark_row.at.isoformat(),
        }
    return [found[key] for key in wanted]


def _records(keys: Iterable[str]) -> dict[str, dict[str, Any]]:
    rows = Record.objects.filter(with_keys(keys))
    return {
        row.key: {
            "key": row.key,
            "name": f"{row.noun.replace('_', ' ')} {row.record_id}",
            "noun": row.noun,
            "id": row.record_id,
            "is_aside": row.filter_code is not None,
            "flow_id": row.flow_id or (row.run.flow_id if row.run else None),
            "before": None,
        }
        for row in rows.select_related("run")
    }


def _ghosts(keys: Sequence[str]) -> dict[str, dict[str, Any]]:
    numbers = {key: key.partition(":")[2] for key in keys}
    ids = [int(text) for text in numbers.values() if text.isdecimal() and len(text) < 19]
    rows = Ghost.objects.select_related("run").in_bulk(ids)
    return {
        key: {
            "key": key,
            "name": f"ghost {text}",
            "noun": GHOST,
            "id": text,
            "is_aside": True,
            "flow_id": rows[int(text)].run.flow_id if rows[int(text)].run else None,  # type: ignore[union-attr] # asked
            "before": None,
        }
        for key, text in numbers.items()
        if text.isdecimal() and len(text) < 19 and int(text) in rows and str(int(text)) == text
    }


def _subject(one: dict[str, Any], effect: str) -> Subject:
    return Subject(
        key=one["key"],
        name=one["name"],
        state="reviewed" if one["before"] else "unreviewed",
        effect=effect,
        flow_id=one["flow_id"],
    )


def _was(one: dict[str, Any]) -> str:
    before = one["before"]
    return f"Until now reviewed by {before['by']}: {before['note']}" if before else ""


def _audit(
    action: str,
    found: Sequence[dict[str, Any]],
    *,
    actor: str,
    reason: str,
    after: dict[str, Any] | None,
) -> None:
    """One entry for each record, under its own noun and id, so that its history finds it."""
    for one in found:
        record_audit(
            connection.connection,
            actor=actor,
            action=action,
            object_kind=one["noun"],
            object_id=one["id"],
            flow_id=one["flow_id"],
            reason=reason,
            before=one["before"],
            after=after,
        )
    transaction.on_commit(lambda: _notices.changed(["runs", "ghosts"]))
