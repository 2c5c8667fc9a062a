"""Backfill a range of dates: ask for it, look at what it would do, pause it, narrow it, cancel it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db import connection, transaction

from scheduler_app.hints.notices import Notices
from scheduler_app.models import Flow, Run
from scheduler_app.operations.reasons import check_reason
from scheduler_app.rules import backfill as rules
from scheduler_app.rules import params
from scheduler_app.rules.definition import from_dict
from scheduler_app.rules.errors import Conflict, InvalidInput, NotFound
from scheduler_app.rules.run_keys import backfill_run_key
from scheduler_app.transitions import backfill as moves
from scheduler_app.transitions.audit import record_audit

_notices = Notices(settings.CACHE_URL)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatePlan:
    """One date and what would become of it now."""

    logical_date: datetime
    data_interval_end: datetime
    state: rules.DateState  # created, rerun, skipped
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillPlan:
    """What a backfill does, or would do; ``id`` is null for a dry run."""

    id: int | None
    flow_id: str
    dates: tuple[DatePlan, ...]  # in the order of their turn
    counts: Mapping[str, int]  # by state
    dry_run: bool


def create_backfill(
    *,
    flow_id: str,
    from_date: datetime,
    to_date: datetime,
    actor: str,
    reason: str = "",
    run_backwards: bool = False,
    reprocess: str = rules.Reprocess.NONE,
    max_active_runs: int = rules.ACTIVE_RUNS_DEFAULT,
    conf: Mapping[str, Any] | None = None,
    dry_run: bool = False,
) -> BackfillPlan:
    """Every logical date from ``from_date`` to ``to_date`` waits for its run; a scheduler makes them.

    Both bounds are aware and included. ``reprocess``: which runs that exist already begin another
    run attempt (none, failed, all). At most ``max_active_runs`` of its runs are active at a
    time, beside the flow's own. A dry run changes nothing and needs no reason. Raises ``NotFound``,
    ``InvalidInput``, and ``Conflict`` while the flow has another backfill, or was removed.
    """
    why = "" if dry_run else check_reason(reason)
    _check(from_date, to_date, reprocess, max_active_runs, conf)
    with transaction.atomic():
        flow = Flow.objects.select_related("current_version").filter(flow_id=flow_id).first()
        if flow is None or flow.current_version is None:
            message = f"no flow is called {flow_id!r}"
            raise NotFound(message, field="flow_id")
        if flow.removed_at is not None:
            message = f"flow {flow_id!r} was removed: its file no longer defines it"
            raise Conflict(message, field="flow_id")
        definition = from_dict(flow.current_version.definition)
        params.check(definition.param_schemas, {**definition.params, **(conf or {})})
        dates = rules.dates_of(
            definition,
            first=from_date.astimezone(UTC),
            last=to_date.astimezone(UTC),
            is_backwards=run_backwards,
        )
        planned = _planned(flow_id, dates, reprocess)
        number = None
        if not dry_run:
            number = moves.create_backfill(
                connection.connection,
                new=moves.NewBackfill(
                    flow_id=flow_id,
                    shard=flow.shard,
                    version_id=flow.current_version.pk,
                    from_date=from_date.astimezone(UTC),
                    to_date=to_date.astimezone(UTC),
                    is_backwards=run_backwards,
                    reprocess=reprocess,
                    max_active_runs=max_active_runs,
                    conf=dict(conf or {}),
                    actor=actor,
                    reason=why,
                ),
                dates=dates,
            )
            if number is None:
                message = (
                    f"flow {flow_id!r} has a backfill that is not over; wait for it or cancel it"
                )
                raise Conflict(message, field="flow_id")
            _audit(
                number,
                flow_id,
                actor=actor,
                action="backfill",
                reason=why,
                after={"dates": len(dates), "reprocess": reprocess},
            )
            transaction.on_commit(_tell)
    return BackfillPlan(
        id=number,
        flow_id=flow_id,
        dates=planned,
        counts=dict(Counter(str(one.state) for one in planned)),
        dry_run=dry_run,
    )


def pause_backfill(*, backfill_id: int, is_paused: bool, actor: str, reason: str = "") -> None:
    """No further run is made before it goes on, or it goes on; asking again changes nothing.

    Raises ``NotFound``, ``InvalidInput`` without a reason for a pause, ``Conflict`` when it is over.
    """
    why = check_reason(reason) if is_paused else reason.strip()

    def act(found: dict[str, Any]) -> bool:
        if (found["paused_at"] is not None) == is_paused:
            return False
        moves.set_backfill_paused(
            connection.connection, backfill_id=backfill_id, is_paused=is_paused
        )
        return True

    _change(
        backfill_id,
        act,
        actor=actor,
        action="pause_backfill" if is_paused else "unpause_backfill",
        reason=why,
        after={"is_paused": is_paused},
    )


def set_limit(*, backfill_id: int, max_active_runs: int, actor: str, reason: str) -> None:
    """So many of its runs may be active at a time; fewer than now stops none of them.

    Raises ``NotFound``, ``InvalidInput``, ``Conflict`` when it is over.
    """
    why = check_reason(reason)
    _check_limit(max_active_runs)

    def act(found: dict[str, Any]) -> bool:
        if found["max_active_runs"] == max_active_runs:
            return False
        moves.set_backfill_limit(
            connection.connection, backfill_id=backfill_id, max_active_runs=max_active_runs
        )
        return True

    _change(
        backfill_id,
        act,
        actor=actor,
        action="limit_backfill",
        reason=why,
        after={"max_active_runs": max_active_runs},
    )


def cancel_backfill(*, backfill_id: int, actor: str, reason: str) -> None:
    """The dates that wait get no run; runs that were made go on.

    Raises ``NotFound``, ``InvalidInput`` without a reason, ``Conflict`` when it is over.
    """
    why = check_reason(reason)

    def act(found: dict[str, Any]) -> bool:
        if found["cancelled_at"] is not None:
            return False
        moves.cancel_waiting(
            connection.connection, backfill_id=backfill_id, actor=actor, reason=why
        )
        moves.end_backfill(connection.connection, backfill_id=backfill_id)
        return True

    _change(
        backfill_id,
        act,
        actor=actor,
        action="cancel_backfill",
        reason=why,
        after={"is_cancelled": True},
    )


def _change(
    backfill_id: int,
    act: Callable[[dict[str, Any]], bool],
    *,
    actor: str,
    action: str,
    reason: str,
    after: Mapping[str, Any],
) -> None:
    with transaction.atomic():
        found = moves.lock_backfill(connection.connection, backfill_id=backfill_id)
        if found is None:
            message = f"there is no backfill {backfill_id}"
            raise NotFound(message, field="backfill")
        if not found["is_active"]:
            message = f"Backfill {backfill_id} is over; nothing is left to change."
            raise Conflict(message, field="backfill")
        if not act(found):
            return
        _audit(
            backfill_id,
            found["flow_id"],
            actor=actor,
            action=action,
            reason=reason,
            before={
                "is_paused": found["paused_at"] is not None,
                "max_active_runs": found["max_active_runs"],
            },
            after=after,
        )
        transaction.on_commit(_tell)


def _planned(flow_id: str, dates: list[Any], reprocess: str) -> tuple[DatePlan, ...]:
    """What would become of each date as the runs are now."""
    rows = Run.objects.filter(flow_id=flow_id, filter_code__isnull=True).filter(
        logical_date__gte=min(one.start for one in dates),
        logical_date__lte=max(one.start for one in dates),
    )
    keys = [backfill_run_key(one.start) for one in dates]
    found: dict[datetime, rules.Existing] = {}
    for row in [*rows.order_by("id"), *Run.objects.filter(flow_id=flow_id, run_key__in=keys)]:
        existing = rules.Existing(
            run_id=row.pk,
            run_key=row.run_key,
            state=row.state,
            is_frozen=row.frozen_at is not None,
        )
        if row.logical_date is not None and (
            row.logical_date not in found or row.run_type == "scheduled"
        ):
            found[row.logical_date] = existing
    planned = []
    for one in dates:
        decision = rules.decide(found.get(one.start), reprocess=reprocess)
        planned.append(
            DatePlan(
                logical_date=one.start,
                data_interval_end=one.end,
                state=decision.state,
                reason=decision.reason,
            )
        )
    return tuple(planned)


def _check(
    from_date: datetime,
    to_date: datetime,
    reprocess: str,
    max_active_runs: int,
    conf: Mapping[str, Any] | None,
) -> None:
    for name, value in (("from_date", from_date), ("to_date", to_date)):
        if value.tzinfo is None:
            message = f"{name} needs an offset, such as 2026-01-31T02:00:00Z"
            raise InvalidInput(message, field=name)
    if reprocess not in [str(word) for word in rules.Reprocess]:
        message = f"reprocess must be one of {', '.join(rules.Reprocess)}"
        raise InvalidInput(message, field="reprocess")
    _check_limit(max_active_runs)
    if conf is not None and not isinstance(conf, Mapping):
        raise InvalidInput("conf must be a JSON object", field="conf")


def _check_limit(max_active_runs: int) -> None:
    if not 1 <= max_active_runs <= rules.ACTIVE_RUNS_MAX:
        message = f"max_active_runs must be from 1 to {rules.ACTIVE_RUNS_MAX}"
        raise InvalidInput(message, field="max_active_runs")


def _audit(
    backfill_id: int,
    flow_id: str,
    *,
    actor: str,
    action: str,
    reason: str,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any],
) -> None:
    record_audit(
        connection.connection,
        actor=actor,
        action=action,
        object_kind="backfill",
        object_id=str(backfill_id),
        flow_id=flow_id,
        reason=reason,
        before=None if before is None else dict(before),
        after=dict(after),
    )


def _tell() -> None:
    _notices.wake(flows=1)
    _notices.changed(["backfills", "home"])
