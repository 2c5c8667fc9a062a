"""The timeline of a run: a bar for each attempt, from when it was issued to its end."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from scheduler_app.queries.attempts import AttemptRow

WIDTH: Final = 1000.0  # of the picture
LABEL_WIDTH: Final = 210.0
LANE_HEIGHT: Final = 22.0
HEAD_HEIGHT: Final = 24.0
BAR_LEAST: Final = 3.0  # however short an attempt was
TICKS: Final = 5
LABEL_CHARACTERS: Final = 28


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One attempt: it waited from ``x`` on and ran from ``ran_x`` on. Lengths of the picture."""

    attempt: AttemptRow
    x: float
    waited: float
    ran_x: float
    ran: float
    is_open: bool  # goes on

    @property
    def state(self) -> str:
        """The state that it shows."""
        return self.attempt.outcome or self.attempt.state


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One line of the picture: the attempts of a task instance, current and filtered apart."""

    label: str
    ti: int | None
    y: float
    bars: tuple[Bar, ...]
    is_first: bool  # of its task instance: it has the label


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """One time of the scale."""

    x: float
    at: datetime
    after: timedelta  # the beginning


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """All lanes, with the scale above them."""

    lanes: tuple[Lane, ...]
    ticks: tuple[Tick, ...]
    height: float
    began: datetime
    lasted: timedelta


def timeline_of(attempts: Sequence[AttemptRow], *, now: datetime) -> Timeline | None:
    """The timeline of these attempts, oldest first; none if nothing was issued yet."""
    known = [one for one in attempts if _began(one) is not None]
    if not known:
        return None
    began = min(at for one in known if (at := _began(one)) is not None)
    ended = max(one.ended_at or now for one in known)
    lasted = max(ended - began, timedelta(milliseconds=1))
    scale = (WIDTH - LABEL_WIDTH) / lasted.total_seconds()

    def place(at: datetime) -> float:
        return round(LABEL_WIDTH + (at - began).total_seconds() * scale, 1)

    by_ti: dict[tuple[str, int | None], list[AttemptRow]] = defaultdict(list)
    for one in known:
        by_ti[_label(one), one.ti].append(one)
    lanes: list[Lane] = []
    for (label, ti), several in by_ti.items():
        current = [one for one in several if not one.is_filtered]
        aside = [one for one in several if one.is_filtered]
        for number, group in enumerate(part for part in (current, aside) if part):
            lanes.append(
                Lane(
                    label=label,
                    ti=ti,
                    y=HEAD_HEIGHT + len(lanes) * LANE_HEIGHT,
                    bars=tuple(_bar(one, place, now) for one in group),
                    is_first=number == 0,
                )
            )
    return Timeline(
        lanes=tuple(lanes),
        ticks=tuple(
            Tick(
                x=place(began + lasted * n / TICKS),
                at=began + lasted * n / TICKS,
                after=lasted * n / TICKS,
            )
            for n in range(TICKS)
        ),
        height=HEAD_HEIGHT + len(lanes) * LANE_HEIGHT + 6,
        began=began,
        lasted=lasted,
    )


def _began(one: AttemptRow) -> datetime | None:
    return one.issued_at or one.started_at


def _label(one: AttemptRow) -> str:
    name = one.task_id or "no task known"
    if one.map_index is not None and one.map_index >= 0:
        name = f"{name} [{one.map_index}]"
    return name if len(name) <= LABEL_CHARACTERS else f"{name[: LABEL_CHARACTERS - 1]}…"


def _bar(one: AttemptRow, place: object, now: datetime) -> Bar:
    assert callable(place)
    start = _began(one)
    assert start is not None, "only those that began are drawn"
    end = one.ended_at or now
    x, end_x = place(start), place(end)
    ran_x = end_x if one.started_at is None else max(x, place(one.started_at))
    if one.started_at is not None:
        end_x = max(end_x, ran_x + BAR_LEAST)
    return Bar(
        attempt=one,
        x=x,
        waited=round(max(0.0, ran_x - x), 1),
        ran_x=ran_x,
        ran=round(max(0.0, end_x - ran_x), 1),
        is_open=one.ended_at is None,
    )
