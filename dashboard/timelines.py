"""The timeline of a run: who led, what was executed where, what was said of it, what people did.

A lane for each task instance (or for each process), with a bar for each attempt from when it was
issued to its end; above them the leaders of the shard, below them ghosts, executor events and acts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from dashboard.templatetags.dashboard import in_words
from scheduler_app.queries.task_instances import told_states
from scheduler_app.rules import visibility

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from scheduler_app.queries.attempts import AttemptFold, AttemptRow
    from scheduler_app.queries.audit import AuditRow
    from scheduler_app.queries.executor_events import EventRow
    from scheduler_app.queries.ghosts import GhostRow
    from scheduler_app.queries.terms import Term

WIDTH: Final = 1000.0  # of the picture
LABEL_WIDTH: Final = 210.0
EDGE: Final = 8.0  # beyond the last moment, so that what is drawn there is seen whole
LANE_HEIGHT: Final = 22.0
HEAD_HEIGHT: Final = 24.0
BAR_LEAST: Final = 3.0  # however short an attempt was
TICKS: Final = 5
LABEL_CHARACTERS: Final = 28
IDLE: Final = timedelta(seconds=60)  # a longer time in which nothing happens is shown short
BREAK_WIDTH: Final = 54.0
BREAKS_PART: Final = 0.4  # of the picture that breaks take at most
FOLD_MOMENTS_MAX: Final = 500  # of one folded bar
# What a folded bar shows of how its attempts ended, or where they are.
FOLD_STATES: Final = ("failed", "lost", "terminated", "running", "issued", "deferred", "success")
TEXT_WIDTH: Final = 60.0  # of a band that has room for its words


class Axis(StrEnum):
    """How time becomes length."""

    COMPRESSED = "compressed"  # quiet times are short
    REAL = "real"
    ORDINAL = "ordinal"  # one step from each moment to the next: best for races


class Lanes(StrEnum):
    """What a lane of executions stands for."""

    TASK = "task"
    HOST = "host"  # a process


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
class FoldedBar:
    """All attempts of a mapped task: from the first issue to the first start, and to the last end."""

    fold: AttemptFold
    state: str  # trouble first
    told: str
    x: float
    waited: float
    ran_x: float
    ran: float

    @property
    def is_open(self) -> bool:
        """Whether one of them goes on."""
        return self.fold.ended_at is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One line of the picture: attempts of a task instance or a process, current and filtered apart."""

    label: str
    ti: int | None
    y: float
    bars: tuple[Bar, ...]
    is_first: bool  # of its task instance or process: it has the label
    folded: FoldedBar | None = None  # in place of bars: all attempts of a mapped task


@dataclass(frozen=True, slots=True, kw_only=True)
class Led:
    """One term of the shard's lease."""

    term: Term
    tone: int
    text: str
    x: float
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Haunt:
    """One ghost, from when it was first seen until it was over."""

    ghost: GhostRow
    y: float
    x: float
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """One executor event or act of a person, at its moment."""

    x: float
    words: str
    event: int | None = None
    is_filtered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """A quiet time, shown shorter than it was."""

    x: float
    width: float
    text: str

    @property
    def middle(self) -> float:
        """Where its words stand."""
        return round(self.x + self.width / 2, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """One time of the scale."""

    x: float
    at: datetime
    after: timedelta  # the beginning


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What happened around the executions: leaders, ghosts, what was said, what people did."""

    terms: Sequence[Term] = ()
    ghosts: Sequence[GhostRow] = ()
    events: Sequence[EventRow] = ()
    events_aside: int = 0  # filtered ones, drawn or not
    acts: Sequence[AuditRow] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """All lanes, with the scale above them."""

    lanes: tuple[Lane, ...]
    led: tuple[Led, ...]
    led_y: float
    haunts: tuple[Haunt, ...]
    events: tuple[Sign, ...]
    events_y: float
    acts: tuple[Sign, ...]
    acts_y: float
    breaks: tuple[Break, ...]
    ticks: tuple[Tick, ...]
    height: float
    began: datetime
    lasted: timedelta


class Scale:
    """Places of moments in the picture. Nothing lies between two moments that follow each other."""

    def __init__(self, moments: Sequence[datetime], axis: Axis) -> None:
        self.moments = sorted({*moments})
        if len(self.moments) == 1:
            self.moments.append(self.moments[0] + timedelta(milliseconds=1))
        room = WIDTH - LABEL_WIDTH - EDGE
        spans = [after - before for before, after in pairwise(self.moments)]
        quiet = [axis is Axis.COMPRESSED and span > IDLE for span in spans]
        if all(quiet):
            quiet = [False] * len(spans)  # nothing to be short beside
        short = min(BREAK_WIDTH, room * BREAKS_PART / max(1, sum(quiet)))
        weights = [
            0.0 if is_quiet else 1.0 if axis is Axis.ORDINAL else span.total_seconds()
            for span, is_quiet in zip(spans, quiet, strict=True)
        ]
        unit = (room - short * sum(quiet)) / sum(weights)
        self.places = [LABEL_WIDTH]
        breaks: list[Break] = []
        for span, weight, is_quiet in zip(spans, weights, quiet, strict=True):
            x, width = self.places[-1], short if is_quiet else weight * unit
            if is_quiet:
                text = in_words(span.total_seconds())
                breaks.append(Break(x=round(x, 1), width=round(width, 1), text=text))
            self.places.append(x + width)
        self.breaks = tuple(breaks)

    def place(self, at: datetime) -> float:
        """Where this moment lies; what is outside lies at the edge."""
        number = min(max(bisect_right(self.moments, at) - 1, 0), len(self.moments) - 2)
        begin, end = self.moments[number], self.moments[number + 1]
        part = min(max((at - begin) / (end - begin), 0.0), 1.0)
        x = self.places[number] + (self.places[number + 1] - self.places[number]) * part
        return round(x, 1)

    def at(self, x: float) -> datetime:
        """The moment that lies there."""
        number = min(max(bisect_right(self.places, x) - 1, 0), len(self.places) - 2)
        begin, end = self.places[number], self.places[number + 1]
        part = 0.0 if end <= begin else (x - begin) / (end - begin)
        return self.moments[number] + (self.moments[number + 1] - self.moments[number]) * part


def timeline_of(
    attempts: Sequence[AttemptRow],
    *,
    now: datetime,
    axis: Axis = Axis.COMPRESSED,
    lanes: Lanes = Lanes.TASK,
    around: Around | None = None,
    folds: Sequence[AttemptFold] = (),
) -> Timeline | None:
    """The timeline of these attempts, oldest first; none if nothing was issued yet.

    ``folds``: mapped tasks, whose attempts are one bar each, below the others.
    """
    known = [one for one in attempts if _began(one) is not None]
    if not known and not folds:
        return None
    besides = around or Around()
    began = min(
        [at for one in known if (at := _began(one)) is not None]
        + [one.issued_at for one in folds if one.issued_at is not None]
    )
    ended = max(
        [one.ended_at or now for one in known]
        + [one.ended_at or now for one in folds]
        + [one.received_at for one in besides.events]
        + [one.ended_at or one.last_seen_at for one in besides.ghosts]
    )
    ended = max(ended, began + timedelta(milliseconds=1))
    moments = _moments(known, folds, besides, began, ended)
    scale = Scale([began, ended, *moments], axis)
    led_y = HEAD_HEIGHT
    y = HEAD_HEIGHT + (LANE_HEIGHT if besides.terms else 0.0)
    made = _lanes(known, scale, now, lanes, y)
    made += _folded(folds, scale, now, y + len(made) * LANE_HEIGHT)
    y += len(made) * LANE_HEIGHT
    haunts = tuple(
        Haunt(
            ghost=one,
            y=y + number * LANE_HEIGHT,
            x=scale.place(one.first_seen_at),
            width=max(
                BAR_LEAST,
                round(
                    scale.place(one.ended_at or one.last_seen_at) - scale.place(one.first_seen_at),
                    1,
                ),
            ),
        )
        for number, one in enumerate(besides.ghosts)
    )
    y += len(haunts) * LANE_HEIGHT
    events_y, y = y, y + (LANE_HEIGHT if besides.events or besides.events_aside else 0.0)
    acts_y, y = y, y + (LANE_HEIGHT if besides.acts else 0.0)
    room = WIDTH - LABEL_WIDTH - EDGE
    places = [LABEL_WIDTH + room * n / TICKS for n in range(TICKS)]
    return Timeline(
        lanes=made,
        led=tuple(_led(besides.terms, scale, began, ended)),
        led_y=led_y,
        haunts=haunts,
        events=tuple(
            Sign(
                x=scale.place(one.received_at),
                words=_said(one),
                event=one.id,
                is_filtered=one.is_filtered,
            )
            for one in besides.events
        ),
        events_y=events_y,
        acts=tuple(
            Sign(x=scale.place(one.at), words=f"{one.actor}: {one.action} ({one.reason})")
            for one in besides.acts
            if began <= one.at <= ended
        ),
        acts_y=acts_y,
        breaks=scale.breaks,
        ticks=tuple(Tick(x=round(x, 1), at=scale.at(x), after=scale.at(x) - began) for x in places),
        height=y + 6,
        began=began,
        lasted=ended - began,
    )


def _moments(
    known: Sequence[AttemptRow],
    folds: Sequence[AttemptFold],
    besides: Around,
    began: datetime,
    ended: datetime,
) -> list[datetime]:
    """Every moment at which something happened: between them it was quiet."""
    told = [at for one in known for at in (_began(one), one.started_at, one.ended_at)]
    # All the time of a folded bar something happens: it is never shown short.
    told += [at for one in folds for at in _while(one, ended)]
    told += [one.received_at for one in besides.events]
    told += [at for one in besides.ghosts for at in (one.first_seen_at, one.ended_at)]
    told += [at for one in besides.terms for at in (one.began_at, one.ended_at)]
    told += [one.at for one in besides.acts]
    return [at for at in told if at is not None and began <= at <= ended]


def _lanes(
    known: Sequence[AttemptRow], scale: Scale, now: datetime, by: Lanes, top: float
) -> tuple[Lane, ...]:
    groups: dict[tuple[str, int | None], list[AttemptRow]] = defaultdict(list)
    for one in known:
        key = (_place(one), None) if by is Lanes.HOST else (_label(one), one.ti)
        groups[key].append(one)
    made: list[Lane] = []
    for (label, ti), several in groups.items():
        current = [one for one in several if not one.is_filtered]
        aside = [one for one in several if one.is_filtered]
        for number, group in enumerate(part for part in (current, aside) if part):
            made.append(
                Lane(
                    label=label,
                    ti=ti,
                    y=top + len(made) * LANE_HEIGHT,
                    bars=tuple(_bar(one, scale, now) for one in group),
                    is_first=number == 0,
                )
            )
    return tuple(made)


def _while(fold: AttemptFold, ended: datetime) -> list[datetime]:
    """Moments from the first to the last of a fold, none further apart than what counts as quiet."""
    assert fold.issued_at is not None, "only those that began are drawn"
    last = fold.ended_at or ended
    parts = min(int((last - fold.issued_at) / IDLE) + 1, FOLD_MOMENTS_MAX)
    step = (last - fold.issued_at) / parts
    return [fold.issued_at + step * number for number in range(parts + 1)]


def _folded(
    folds: Sequence[AttemptFold], scale: Scale, now: datetime, top: float
) -> tuple[Lane, ...]:
    made: list[Lane] = []
    for fold in folds:
        assert fold.issued_at is not None, "only those that began are drawn"
        x, end_x = scale.place(fold.issued_at), scale.place(fold.ended_at or now)
        ran_x = end_x if fold.started_at is None else max(x, scale.place(fold.started_at))
        if fold.started_at is not None:
            end_x = max(end_x, ran_x + BAR_LEAST)
        label = f"{fold.task_id} ×{fold.number:,}"
        made.append(
            Lane(
                label=label if len(label) <= LABEL_CHARACTERS else _shortened(fold),
                ti=None,
                y=top + len(made) * LANE_HEIGHT,
                bars=(),
                is_first=True,
                folded=FoldedBar(
                    fold=fold,
                    state=next(
                        (one for one in FOLD_STATES if one in fold.outcomes),
                        next(iter(fold.outcomes)),
                    ),
                    told=told_states(fold.outcomes),
                    x=x,
                    waited=round(max(0.0, ran_x - x), 1),
                    ran_x=ran_x,
                    ran=round(max(0.0, end_x - ran_x), 1),
                ),
            )
        )
    return tuple(made)


def _shortened(fold: AttemptFold) -> str:
    number = f"… ×{fold.number:,}"
    return f"{fold.task_id[: LABEL_CHARACTERS - len(number)]}{number}"


def _led(terms: Sequence[Term], scale: Scale, began: datetime, ended: datetime) -> list[Led]:
    tones: dict[object, int] = {}
    found = []
    for term in terms:
        begin, end = max(term.began_at, began), min(term.ended_at or ended, ended)
        if end < begin:
            continue
        x = scale.place(begin)
        width = max(BAR_LEAST, round(scale.place(end) - x, 1))
        tone = tones.setdefault(term.holder, len(tones) % 6)
        text = f"{term.place} · {term.token}"
        fits = width >= TEXT_WIDTH + len(text) * 3
        short = str(term.token) if width >= TEXT_WIDTH / 2 else ""
        found.append(Led(term=term, tone=tone, text=text if fits else short, x=x, width=width))
    return found


def _said(event: EventRow) -> str:
    words = visibility.EVENT_WORDS.get(event.kind, event.kind.replace("_", " "))
    reason = event.verdict_reason or event.filter_reason or ""
    return f"{words}, {event.verdict}{': ' + reason if reason else ''} (says {event.source})"


def _began(one: AttemptRow) -> datetime | None:
    return one.issued_at or one.started_at


def _place(one: AttemptRow) -> str:
    return f"{one.hostname}:{one.pid}" if one.hostname else "not claimed"


def _label(one: AttemptRow) -> str:
    name = one.task_id or "no task known"
    if one.map_index is not None and one.map_index >= 0:
        name = f"{name} [{one.map_index}]"
    return name if len(name) <= LABEL_CHARACTERS else f"{name[: LABEL_CHARACTERS - 1]}…"


def _bar(one: AttemptRow, scale: Scale, now: datetime) -> Bar:
    start = _began(one)
    assert start is not None, "only those that began are drawn"
    x, end_x = scale.place(start), scale.place(one.ended_at or now)
    ran_x = end_x if one.started_at is None else max(x, scale.place(one.started_at))
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
