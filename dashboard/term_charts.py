"""Who led when: a lane for each shard, a band for each term, and a hatched gap where nobody led."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

from dashboard.templatetags.dashboard import in_words

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from scheduler_app.queries.terms import Term

WIDTH: Final = 1000.0
LABEL_WIDTH: Final = 84.0
HEAD_HEIGHT: Final = 22.0
LANE_HEIGHT: Final = 24.0
BAND_HEIGHT: Final = 16.0
STEPS_HEIGHT: Final = 150.0  # of the lane of a shard that is looked at alone
BAND_LEAST: Final = 2.0  # however short a term was
GAP_LEAST: Final = 3.0  # a moment without a leader is seen
GAP_LEAST_S: Final = 0.5  # shorter ones are told in the table alone: each hand-over has one
TICKS: Final = 6
TONES: Final = 6  # of bands; holders beyond share them, and the letter tells them apart
LETTER_WIDTH: Final = 12.0
TOKEN_WIDTH: Final = 58.0
ENDS: Final = {
    "held": "goes on",
    "expired": "its lease ran out",
    "released": "given up",
    "forced": "taken from it by hand",
    "demoted": "it stopped deciding by itself",
    "followed": "the next one followed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """One process that led in the window, and how the picture marks it."""

    letter: str
    tone: int
    place: str
    shards: int  # that it leads now


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """One term. Lengths of the picture; ``gap`` is the part before it without a leader."""

    term: Term
    tone: int
    text: str  # as much as fits
    x: float
    width: float
    y: float
    gap_x: float = 0.0
    gap: float = 0.0
    step_from: float | None = None  # where the band before it lay, if higher or lower


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One shard."""

    shard: int
    y: float
    height: float
    bands: tuple[Band, ...]
    tail_x: float = 0.0  # from where on nobody leads, until now
    tail: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """One time of the scale."""

    x: float
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TermChart:
    """The lanes with their scale."""

    lanes: tuple[Lane, ...]
    ticks: tuple[Tick, ...]
    holders: tuple[Holder, ...]
    height: float


def chart_of(terms: Sequence[Term], *, since: datetime, until: datetime) -> TermChart | None:
    """The chart of these terms, sorted by shard and beginning; none of no terms."""
    if not terms:
        return None
    holders = _holders(terms)
    first = min(one.began_at for one in terms)
    if first > since:
        since = max(since, first - (until - first) * 0.03)  # nothing is known of before
    scale = (WIDTH - LABEL_WIDTH) / max((until - since).total_seconds(), 0.001)

    def place(at: datetime) -> float:
        inside = min(max(at, since), until)
        return round(LABEL_WIDTH + (inside - since).total_seconds() * scale, 1)

    lanes: list[Lane] = []
    y = HEAD_HEIGHT
    shards = [(shard, list(several)) for shard, several in groupby(terms, key=lambda t: t.shard)]
    for shard, several in shards:
        height = STEPS_HEIGHT if len(shards) == 1 and len(several) > 1 else LANE_HEIGHT
        last = several[-1]
        tail_x = place(last.ended_at) if last.ended_at is not None else WIDTH
        lanes.append(
            Lane(
                shard=shard,
                y=y,
                height=height,
                bands=tuple(_bands(several, place, holders, y=y, height=height, until=until)),
                tail_x=min(tail_x, WIDTH - GAP_LEAST),
                tail=0.0 if last.ended_at is None else max(GAP_LEAST, WIDTH - tail_x),
            )
        )
        y += height
    span = until - since
    return TermChart(
        lanes=tuple(lanes),
        ticks=tuple(
            Tick(x=place(since + span * n / TICKS), at=since + span * n / TICKS)
            for n in range(TICKS)
        ),
        holders=tuple(holders.values()),
        height=y + 4,
    )


def summary(
    terms: Sequence[Term], *, window: timedelta, fail_overs: int, longest_gap: Term | None
) -> str:
    """What the chart says, in a sentence."""
    shards = len({one.shard for one in terms})
    parts = [
        f"In the last {in_words(window.total_seconds())}: {_counted(len(terms), 'term')} of"
        f" {_counted(shards, 'shard')}, {_counted(fail_overs, 'fail-over')}."
    ]
    if longest_gap is not None and longest_gap.gap_s:
        parts.append(
            f"Longest without a leader: shard {longest_gap.shard}, {in_words(longest_gap.gap_s)}"
            f" before token {longest_gap.token}."
        )
    faults = [one for one in terms if one.fault]
    parts.append(
        f"{_counted(len(faults), 'term')} should not be as recorded."
        if faults
        else "Tokens only grew, and no two terms of a shard overlap."
    )
    return " ".join(parts)


def _bands(
    several: Sequence[Term],
    place: object,
    holders: dict[object, Holder],
    *,
    y: float,
    height: float,
    until: datetime,
) -> list[Band]:
    assert callable(place)
    rise = 0.0
    if height > LANE_HEIGHT:
        rise = (height - BAND_HEIGHT - 8) / (len(several) - 1)
    bands: list[Band] = []
    before: Term | None = None
    for number, term in enumerate(several):
        x, end_x = place(term.began_at), place(term.ended_at or until)
        width = max(BAND_LEAST, round(end_x - x, 1))
        holder = holders[term.holder]
        top = y + (height - BAND_HEIGHT) - 4 - rise * number
        gap_x = place(before.ended_at) if before is not None and before.ended_at else x
        has_gap = (term.gap_s or 0.0) >= GAP_LEAST_S and before is not None
        bands.append(
            Band(
                term=term,
                tone=holder.tone,
                text=_text(holder.letter, term.token, width),
                x=x,
                width=width,
                y=round(top, 1),
                gap_x=min(gap_x, x - GAP_LEAST) if has_gap else x,
                gap=max(GAP_LEAST, round(x - gap_x, 1)) if has_gap else 0.0,
                step_from=bands[-1].y + BAND_HEIGHT if bands and rise else None,
            )
        )
        before = term
    return bands


def _holders(terms: Sequence[Term]) -> dict[object, Holder]:
    """By job id, in the order in which they came to lead."""
    found: dict[object, Holder] = {}
    for term in sorted(terms, key=lambda t: t.began_at):
        if term.holder not in found:
            number = len(found)
            found[term.holder] = Holder(
                letter=_letter(number),
                tone=number % TONES,
                place=term.place,
                shards=sum(1 for one in terms if one.holder == term.holder and one.end == "held"),
            )
    return found


def _letter(number: int) -> str:
    first, last = divmod(number, 26)
    return (chr(64 + first) if 0 < first <= 26 else "") + chr(65 + last)


def _text(letter: str, token: int, width: float) -> str:
    if width >= TOKEN_WIDTH:
        return f"{letter} · {token}"
    return letter if width >= LETTER_WIDTH else ""


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
