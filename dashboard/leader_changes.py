"""Changes of leaders told together where they are one: eight shards that one scheduler took at once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from scheduler_app.queries.take_overs import TakeOverRow

TOGETHER: Final = timedelta(seconds=2)  # what lies so near is one change


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChange:
    """One change of the leader of one or several shards."""

    at: datetime
    shards: tuple[int, ...]
    cause: str
    old: str  # host:pid; empty: nobody led before
    new: str
    gap_s: float | None  # for how long nobody led, at most
    ghosts: int
    take_over: int  # of the first shard

    @property
    def is_fail_over(self) -> bool:
        """Whether the leader before had not given its shards up."""
        return self.cause in {"expired", "forced"}

    @property
    def named(self) -> str:
        """The shards as a reader says them: ``8-15``, ``2, 5``."""
        return ", ".join(_ranges(self.shards))


def together(rows: Sequence[TakeOverRow]) -> list[LeaderChange]:
    """These take-overs, newest first, those of the same moment, cause and processes as one."""
    found: list[list[TakeOverRow]] = []
    for row in rows:
        if found and _is_same(found[-1][-1], row):
            found[-1].append(row)
        else:
            found.append([row])
    return [_change(several) for several in found]


def _is_same(one: TakeOverRow, other: TakeOverRow) -> bool:
    same = (one.cause, one.holder, one.old_holder) == (other.cause, other.holder, other.old_holder)
    return same and abs(_at(one) - _at(other)) <= TOGETHER


def _change(several: Sequence[TakeOverRow]) -> LeaderChange:
    first = min(several, key=lambda row: row.shard)
    gaps = [row.gap_s for row in several if row.gap_s is not None]
    return LeaderChange(
        at=_at(several[0]),
        shards=tuple(sorted(row.shard for row in several)),
        cause=first.cause,
        old=f"{first.old_hostname or 'unknown'}:{first.old_pid or '?'}" if first.old_holder else "",
        new=f"{first.holder_hostname or 'unknown'}:{first.holder_pid or '?'}",
        gap_s=max(gaps, default=None),
        ghosts=sum(row.counts.get("ghost", 0) for row in several),
        take_over=first.id,
    )


def _at(row: TakeOverRow) -> datetime:
    return row.acquired_at or row.started_at


def _ranges(shards: Sequence[int]) -> list[str]:
    texts = []
    for _, part in groupby(enumerate(shards), key=lambda pair: pair[1] - pair[0]):
        members = [shard for _, shard in part]
        texts.append(str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}")
    return texts
