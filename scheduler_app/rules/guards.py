"""Guards: may an automatic action be carried out now, or does it wait for a person?"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime


class ActionKind(StrEnum):
    """The automatic actions that guards know."""

    RUN_RETRY = "run_retry"  # a policy, or a service, begins a run attempt
    CLEAR = "clear"  # a service clears


class GuardCode(StrEnum):
    """What stopped an automatic action. Stable words."""

    STOPPED = "stopped"  # the kill switch
    COOLDOWN = "cooldown"
    ACTIONS_MAX = "actions_max"
    RUNS_MAX = "runs_max"  # the blast radius
    TASK_INSTANCES_MAX = "task_instances_max"  # likewise
    ATTEMPTS_MAX = "attempts_max"  # a run's own policy allows no other run attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardLimits:
    """Limits of automatic actions on one flow; a null one is not set here. Durations in seconds."""

    cooldown_s: float | None = None  # between two actions; 0 = none
    actions_max: int | None = None  # in the window
    window_s: float | None = None
    runs_max: int | None = None  # that one action may touch
    task_instances_max: int | None = None  # likewise


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardRow:
    """What an operator set for a flow (empty: everywhere) and a kind (empty: each)."""

    flow_id: str
    kind: str
    limits: GuardLimits
    is_stopped: bool = False
    actor: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """The limits in force for one flow and kind, and who stopped it, if anybody did."""

    limits: GuardLimits  # every one is set
    stopped_by: GuardRow | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What was done automatically before, and the moment now. Times aware UTC."""

    now: datetime
    last_at: datetime | None  # the newest action of the flow and kind
    in_window: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much an action touches."""

    runs: int
    task_instances: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Which guard stopped it, and what it compared, in a sentence."""

    code: GuardCode
    sentence: str


def effective(
    rows: Sequence[GuardRow],
    *,
    flow_id: str,
    kind: ActionKind,
    defined: GuardLimits,
    defaults: GuardLimits,
) -> Effective:
    """What holds for actions of the kind on the flow.

    Each limit is that of the nearest place where it is set: the operator's row of the flow and kind,
    of the flow, the flow's definition, the operator's row of the kind everywhere, of the
    installation, the setting. A kill switch of any of these rows holds.
    """
    by_place = {(row.flow_id, row.kind): row for row in rows}
    places = ((flow_id, kind.value), (flow_id, ""), ("", kind.value), ("", ""))
    mine = [by_place[place].limits for place in places[:2] if place in by_place]
    wide = [by_place[place].limits for place in places[2:] if place in by_place]
    return Effective(
        limits=_nearest([*mine, defined, *wide, defaults]),
        stopped_by=next(
            (by_place[p] for p in reversed(places) if p in by_place and by_place[p].is_stopped),
            None,
        ),
    )


def refuse(guard: Effective, past: Past, size: Size) -> Refusal | None:
    """Why the action must wait for a person; null: it need not."""
    limits = guard.limits
    if guard.stopped_by is not None:
        row = guard.stopped_by
        where = f"for flow {row.flow_id}" if row.flow_id else "everywhere"
        what = f" of kind {row.kind}" if row.kind else ""
        return Refusal(
            code=GuardCode.STOPPED,
            sentence=f"{row.actor} stopped automatic actions{what} {where}: {row.reason}",
        )
    for code, found, most, what in (
        (GuardCode.RUNS_MAX, size.runs, limits.runs_max, "runs"),
        (
            GuardCode.TASK_INSTANCES_MAX,
            size.task_instances,
            limits.task_instances_max,
            "task instances",
        ),
    ):
        if most is not None and found > most:
            return Refusal(
                code=code, sentence=f"It would touch {found} {what}; one action may touch {most}."
            )
    cooldown_s = limits.cooldown_s or 0.0
    if past.last_at is not None and past.now - past.last_at < timedelta(seconds=cooldown_s):
        return Refusal(
            code=GuardCode.COOLDOWN,
            sentence=(
                f"The last one on this flow was {(past.now - past.last_at).total_seconds():.1f} s"
                f" before; {cooldown_s:g} s must lie between."
            ),
        )
    if limits.actions_max is not None and past.in_window >= limits.actions_max:
        return Refusal(
            code=GuardCode.ACTIONS_MAX,
            sentence=(
                f"There were {past.in_window} on this flow within {limits.window_s or 0:g} s;"
                f" {limits.actions_max} are allowed."
            ),
        )
    return None


def limits_from(raw: Mapping[str, Any]) -> GuardLimits:
    """The limits that a stored definition has; unknown keys of a newer writer are ignored."""
    known = {one.name for one in fields(GuardLimits)}
    return GuardLimits(**{k: v for k, v in raw.items() if k in known})


def _nearest(several: Sequence[GuardLimits]) -> GuardLimits:
    values = {}
    for one in fields(GuardLimits):
        given = [getattr(limits, one.name) for limits in several]
        values[one.name] = next((value for value in given if value is not None), None)
    return GuardLimits(**values)
