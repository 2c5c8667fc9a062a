"""Change the number of shards."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from django.conf import settings
from django.db import connection, transaction

from scheduler_app.rules import leadership
from scheduler_app.rules.errors import Conflict, InvalidInput
from scheduler_app.transitions.audit import record_audit
from scheduler_app.transitions.shards import (
    fence_off,
    leaders,
    lock_flows,
    lock_shards,
    set_shards,
    shard_count,
    used_shards,
)

SHARDS_MAX: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Resharding:
    """What a change of the number of shards does, or would do."""

    before: int
    after: int
    added: tuple[int, ...]
    removed: tuple[int, ...]
    retiring: dict[int, int]  # shards beyond the number that are still needed -> active runs
    moved: dict[str, tuple[int, int]]  # flow -> from, to
    staying: dict[str, int]  # flows that belong elsewhere and have active runs -> how many
    leaders: tuple[str, ...] = ()  # host:pid of schedulers that must stop first
    is_done: bool = False


def reshard(*, count: int, actor: str, dry_run: bool) -> Resharding:
    """Flows are hashed into ``count`` shards; all in one transaction, audited, or nothing at all.

    Runs stay in the shard that they have. A flow with active runs stays until they have ended, and a
    shard that is still needed retires: run it again then. Raises ``InvalidInput``, and ``Conflict``
    while a scheduler may be deciding.
    """
    if not 1 <= count <= SHARDS_MAX:
        message = f"the number of shards must be between 1 and {SHARDS_MAX}, not {count}"
        raise InvalidInput(message, field="shards")
    with transaction.atomic():
        raw = connection.connection  # the transaction has opened it
        if not dry_run:
            _refuse_leaders(_leaders(raw))
        plan = _plan(raw, count)
        if dry_run:
            transaction.set_rollback(True)
            return plan
        # Somebody may have started before the rows were locked.
        _refuse_leaders(_leaders(raw))
        fence_off(raw, why=f"the number of shards changed from {plan.before} to {count}")
        set_shards(
            raw,
            count=count,
            add=plan.added,
            remove=plan.removed,
            moves={flow_id: to for flow_id, (_, to) in plan.moved.items()},
        )
        record_audit(
            raw,
            actor=actor,
            action="reshard",
            object_kind="installation",
            object_id="shards",
            before={"shards": plan.before},
            after={
                "shards": count,
                "moved_flows": len(plan.moved),
                "staying_flows": len(plan.staying),
                "retiring": sorted(plan.retiring),
            },
        )
    return replace(plan, is_done=True)


def _plan(raw: Any, count: int) -> Resharding:
    have = lock_shards(raw)
    flows = lock_flows(raw)
    used = used_shards(raw)
    moved: dict[str, tuple[int, int]] = {}
    staying: dict[str, int] = {}
    for flow in flows:
        to = leadership.shard_of(flow.flow_id, count)
        if to == flow.shard:
            continue
        if flow.active_runs:
            staying[flow.flow_id] = flow.active_runs
            used.setdefault(flow.shard, flow.active_runs)
        else:
            moved[flow.flow_id] = (flow.shard, to)
    needed = {*range(count), *used}
    return Resharding(
        before=shard_count(raw),
        after=count,
        added=tuple(sorted(needed - {*have})),
        removed=tuple(sorted({*have} - needed)),
        retiring={shard: used[shard] for shard in sorted(used) if shard >= count},
        moved=moved,
        staying=staying,
        leaders=_leaders(raw),
    )


def _leaders(raw: Any) -> tuple[str, ...]:
    return tuple(one.place for one in leaders(raw, dead_after_s=settings.HEARTBEAT_DEAD_AFTER_S))


def _refuse_leaders(places: tuple[str, ...]) -> None:
    if places:
        message = (
            f"{len(places)} scheduler(s) may be deciding now: {', '.join(places)}. Stop them (one that"
            " was killed counts until its lease has run out), and run this again"
        )
        raise Conflict(message, leaders=list(places))
