"""Who should lead how many shards, and what a change of a lease means in words."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

FLAPPING_CHANGES: Final = 3  # of holder, within the window
FLAPPING_WINDOW: Final = timedelta(minutes=10)
NEAR: Final = timedelta(seconds=60)  # an execution so near to a change of its lease says so


class LeaseEventKind(StrEnum):
    """What may happen to a lease."""

    ACQUIRED = "acquired"
    RENEWED_LATE = "renewed_late"
    EXPIRED = "expired"
    RELEASED = "released"
    DEMOTED = "demoted"
    FENCED_WRITE = "fenced_write"


class Cause(StrEnum):
    """Why a lease could be acquired."""

    FIRST = "first"  # nobody had ever held it
    EXPIRED = "expired"  # its holder had not renewed it: a fail-over
    RELEASED = "released"  # its holder had given it up
    TAKEN_BACK = "taken_back"  # by the process that had stopped trusting it
    FORCED = "forced"  # a person took it from its holder: a fail-over


# Its holder had not given it up: what it was deciding may have been cut off.
FAIL_OVERS: Final = (Cause.EXPIRED, Cause.FORCED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another scheduler that takes part and gets on, and how many shards it holds."""

    held: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """What a scheduler does about its number of shards at a safe point."""

    share: int
    give_up: int = 0
    want: int = 0


def shard_of(flow_id: str, shard_count: int) -> int:
    """The shard that a flow belongs to: the same on every host, whatever Python's hash does."""
    return zlib.crc32(flow_id.encode()) % shard_count


def fair_share(shards: int, schedulers: int) -> int:
    """As many shards as each of so many schedulers may hold."""
    return math.ceil(shards / max(1, schedulers))


def balance(*, shards: int, held: int, peers: Sequence[Peer], free: int, long_free: int) -> Balance:
    """How many shards to give up, or to take.

    Given up is only what a peer lacks and nobody holds yet, so that no shard is without a leader
    for nothing. ``free``: shards that can be had now; ``long_free``: those that could be had for
    so long that whoever should have taken them does not, and anybody does.
    """
    share = fair_share(shards, len(peers) + 1)
    if held > share:
        lacking = sum(max(0, share - peer.held) for peer in peers) - free
        return Balance(share=share, give_up=max(0, min(held - share, lacking)))
    return Balance(share=share, want=min(free, max(share - held, long_free)))


def is_flapping(changed_at: Sequence[datetime], now: datetime) -> bool:
    """Whether a lease changed its holder so often of late that nothing can settle."""
    return sum(1 for at in changed_at if now - at <= FLAPPING_WINDOW) >= FLAPPING_CHANGES


def how_near(at: datetime, began_at: datetime, ended_at: datetime | None) -> str:
    """How a change of a lease lies to an execution: before, during or after it, and by how much."""
    if at < began_at:
        return f"{_span(began_at - at)} before it was issued"
    if ended_at is not None and at > ended_at:
        return f"{_span(at - ended_at)} after it ended"
    since = f"{_span(at - began_at)} after it was issued"
    return f"while it was live, {since}"


def explain(kind: str, token: int, detail: Mapping[str, Any] | None) -> str:
    """A lease event in words, with the compared values; never raises."""
    said = detail if isinstance(detail, Mapping) else {}
    match kind:
        case LeaseEventKind.ACQUIRED:
            return _acquired(token, said)
        case LeaseEventKind.EXPIRED:
            renewed = _clock(said.get("renewed_at"))
            since = f"; it was last renewed at {renewed}" if renewed else ""
            return f"Not renewed in time: it ran out at {_clock(said.get('expires_at')) or '?'}{since}."
        case LeaseEventKind.RENEWED_LATE:
            late = _seconds(said.get("late_s"))
            behind = f" {late} after" if late else " after"
            return f"Renewed{behind} it had run out; nobody had taken it, so it goes on."
        case LeaseEventKind.RELEASED if said.get("forced_by"):
            return f"Taken from its holder by {said['forced_by']}: {_plain(said.get('why'))}."
        case LeaseEventKind.RELEASED:
            return f"Given up: {_plain(said.get('why'))}."
        case LeaseEventKind.DEMOTED:
            return f"Its holder stopped deciding by itself: {_plain(said.get('why'))}."
        case LeaseEventKind.FENCED_WRITE:
            return _fenced(said)
        case _:
            return kind.replace("_", " ")


def _acquired(token: int, said: Mapping[str, Any]) -> str:
    gap = _seconds(said.get("gap_s"))
    nobody = f" Nobody led for {gap}." if gap else ""
    old = said.get("old_token", token - 1)
    match said.get("cause"):
        case Cause.FIRST:
            return f"Led for the first time, with token {token}."
        case Cause.EXPIRED:
            renewed = _clock(said.get("old_renewed_at"))
            last = f", last renewed at {renewed}," if renewed else ""
            return f"Taken over with token {token}: the lease of token {old}{last} had run out.{nobody}"
        case Cause.RELEASED:
            return f"Taken with token {token}: token {old} had been given up.{nobody}"
        case Cause.FORCED:
            return f"Taken with token {token}: token {old} had been released by hand.{nobody}"
        case Cause.TAKEN_BACK:
            return f"Taken back with token {token} by the process that had stopped trusting token {old}."
        case _:
            return f"Led with token {token}."


def _fenced(said: Mapping[str, Any]) -> str:
    step = f" of {str(said['step']).replace('_', ' ')}" if said.get("step") else ""
    presented, current = said.get("token_presented"), said.get("token_current")
    if current is None:
        return f"A write{step} was refused: token {presented}, and the lease's row is gone."
    if presented is not None and presented == current and said.get("holder_current", "") is None:
        return (
            f"A write{step} was refused: token {presented} had been released, and nobody holds it."
        )
    if presented is not None and presented == current:
        return f"A write{step} was refused: token {presented} is current, and another holds it."
    return f"A write{step} was refused: token {presented} < {current}."


def _span(span: timedelta) -> str:
    return _seconds(span.total_seconds())


def _plain(text: object) -> str:
    return str(text or "no reason was recorded").rstrip(".")


def _clock(value: object) -> str:
    """``02:11:05.214 UTC``."""
    try:
        at = datetime.fromisoformat(str(value))
    except ValueError:
        return ""
    at = (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    return f"{at:%H:%M:%S}.{at.microsecond // 1000:03d} UTC"


def _seconds(value: object) -> str:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        return ""
    if value < 1:
        return f"{value * 1000:.0f} ms"
    return f"{value:.1f} s" if value < 100 else f"{value:.0f} s"
