"""Evidence for people: one page that prints, and a picture of its moments; both stand by themselves."""

from __future__ import annotations

from datetime import datetime
from html import escape
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scheduler_app.rules.evidence import Row

MOMENTS_MAX: Final = 2_000  # of the page and of the picture; timeline.csv has all
LANES_MAX: Final = 40  # attempts that have a line of their own in the picture
IDLE_S: Final = 60.0  # longer gaps are drawn as long as this
WIDTH: Final = 1_000.0  # of the picture, without the names of its lanes
NAMES: Final = 190.0
LANE: Final = 22.0
TOP: Final = 34.0

# Lanes from top to bottom; attempts have one each, between leaders and events.
LEADER, EVENTS, TRIGGERS, GHOSTS, PEOPLE = (
    "leader",
    "executor events",
    "triggers",
    "ghosts",
    "operators",
)
_LANES: Final = {
    "lease_events": LEADER,
    "executor_events": EVENTS,
    "triggers": TRIGGERS,
    "ghosts": GHOSTS,
    "audit": PEOPLE,
    "reviewed": PEOPLE,
}
_HUES: Final = {"success": "#228568", "failed": "#a61b2b", "lost": "#a61b2b", "deferred": "#5b2bb0"}
_NEUTRAL: Final = "#626b7f"
_RUNNING: Final = "#0e57f0"

_STYLE: Final = """
body{font:14px/1.4 system-ui,sans-serif;margin:24px;color:#14181f;background:#fff}
h1{font-size:20px}h2{font-size:16px;margin-top:28px}
table{border-collapse:collapse;width:100%;font-size:12px}
caption{text-align:left;color:#555}
th,td{border:1px solid #c9ced8;padding:3px 6px;text-align:left;vertical-align:top;overflow-wrap:break-word}
th{white-space:nowrap}
td.n{text-align:right;font-variant-numeric:tabular-nums}
code{font-family:ui-monospace,monospace}
.filtered td{background:repeating-linear-gradient(45deg,#fff 0 6px,#eef0f4 6px 8px)}
svg{max-width:100%;height:auto}
@media print{body{margin:0}h2{break-after:avoid}tr{break-inside:avoid}}
"""


def report(
    *,
    subject: str,
    facts: Sequence[tuple[str, str]],
    rows: Mapping[str, Sequence[Row]],
    omitted: Sequence[str],
) -> bytes:
    """The page: what it is about, what is in the archive, what was set aside and why, every moment."""
    moments = rows.get("timeline", ())
    filtered = [
        (name, row) for name, each in rows.items() for row in each if row.get("filter_code")
    ]
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f"<title>Evidence of {escape(subject)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>Evidence of {escape(subject)}</h1><table>",
        *(
            f"<tr><th>{escape(name)}</th><td><code>{escape(told)}</code></td></tr>"
            for name, told in facts
        ),
        "</table>",
        *(f"<p>{escape(sentence)}</p>" for sentence in omitted),
        "<h2>Records</h2><table><tr><th>File<th>Shown<th>Filtered<th>Total</tr>",
        *(_counted(name, each) for name, each in rows.items()),
        "</table>",
        f"<h2>Set aside: {len(filtered)}</h2>",
        _table(
            ("Record", "Id", "Code", "Why"),
            (
                (name, row.get("id"), row.get("filter_code"), row.get("filter_reason"))
                for name, row in filtered[:MOMENTS_MAX]
            ),
            is_filtered=True,
        ),
        f"<h2>What happened: {len(moments)} moments</h2>",
        _cut(len(moments)),
        picture(rows).decode(),
        _table(
            ("No.", "At (UTC)", "What", "Who", "Token", "Verdict", "Rule", "In words"),
            (
                tuple(
                    row.get(name)
                    for name in ("no", "at", "what", "who", "token", "verdict", "rule", "words")
                )
                for row in moments[:MOMENTS_MAX]
            ),
        ),
        "<p>Every byte of this archive is vouched for by <code>manifest.json</code>:"
        " <code>manage.py evidence verify FILE</code> compares them.</p></body></html>\n",
    ]
    return "\n".join(part for part in parts if part).encode()


def picture(rows: Mapping[str, Sequence[Row]]) -> bytes:
    """The moments in lanes, as SVG: leaders, each attempt, events, triggers, ghosts, operators.

    Time runs to the right; a gap of more than a minute is drawn as one. What was set aside, or
    ignored by its verdict, is hollow.
    """
    moments = [one for one in rows.get("timeline", ()) if one.get("at")][:MOMENTS_MAX]
    places = _places([datetime.fromisoformat(str(one["at"])) for one in moments])
    attempts = {str(row["id"]): row for row in rows.get("attempts", ())}
    lanes = _lanes(moments, attempts)
    heights = {name: TOP + LANE * (number + 0.5) for number, name in enumerate(lanes)}
    height = TOP + LANE * len(lanes) + 6
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {NAMES + WIDTH + 20:g} {height:g}"'
        ' font-family="ui-monospace,monospace" font-size="11">',
        "<title>What happened, in lanes</title>",
    ]
    if moments:
        drawn += [
            _text(NAMES, 14, f"from {moments[0]['at']}"),
            _text(NAMES, 27, f"to   {moments[-1]['at']}"),
        ]
    for name, y in heights.items():
        drawn.append(_text(4, y + 4, _named(name, attempts)))
        drawn.append(f'<path d="M{NAMES:g} {y:g}h{WIDTH:g}" stroke="#c9ced8"/>')
    begun: dict[str, float] = {}
    for one, x in zip(moments, places, strict=True):
        lane = _lane(one, attempts)
        if lane not in heights:
            continue
        y, at = heights[lane], NAMES + x
        if lane in attempts:
            hue = _HUES.get(str(attempts[lane].get("outcome")), _NEUTRAL)
            if str(one["what"]).startswith("attempt claimed"):
                begun[lane] = at
            elif str(one["what"]).startswith("attempt ended") and lane in begun:
                drawn.append(_bar(begun.pop(lane), at, y, hue))
        else:
            hue = _NEUTRAL
        drawn.append(_mark(at, y, hue, one, is_hollow=_is_hollow(one, attempts)))
    # What has begun and not ended runs on to the end.
    drawn += [_bar(at, NAMES + WIDTH, heights[lane], _RUNNING) for lane, at in begun.items()]
    return "\n".join([*drawn, "</svg>\n"]).encode()


def _places(times: Sequence[datetime]) -> list[float]:
    """Where each moment stands between 0 and the width."""
    at, found = 0.0, []
    for number, time in enumerate(times):
        if number:
            at += min(max((time - times[number - 1]).total_seconds(), 0.0), IDLE_S)
        found.append(at)
    whole = at or 1.0
    return [place / whole * WIDTH for place in found]


def _lanes(moments: Iterable[Row], attempts: Mapping[str, Row]) -> list[str]:
    named = dict.fromkeys(_lane(one, attempts) for one in moments)
    own = [name for name in named if name in attempts][:LANES_MAX]
    rest = [name for name in (EVENTS, TRIGGERS, GHOSTS, PEOPLE) if name in named]
    return [*([LEADER] if LEADER in named else []), *own, *rest]


def _lane(one: Row, attempts: Mapping[str, Row]) -> str:
    attempt_id = str(one.get("attempt_id"))
    if one.get("file") == "attempts" and attempt_id in attempts:
        return attempt_id
    return _LANES.get(str(one.get("file")), EVENTS)


def _named(lane: str, attempts: Mapping[str, Row]) -> str:
    if lane not in attempts:
        return lane
    row = attempts[lane]
    return f"{str(row.get('task_id'))[:14]} #{row.get('try_number')} …{lane[-6:]}"


def _is_hollow(one: Row, attempts: Mapping[str, Row]) -> bool:
    attempt = attempts.get(str(one.get("attempt_id"))) if one.get("file") == "attempts" else None
    is_aside = attempt is not None and attempt.get("filter_code") is not None
    return is_aside or one.get("verdict") in {"ignored", "ghost", "refused"}


def _mark(x: float, y: float, hue: str, one: Row, *, is_hollow: bool) -> str:
    told = " · ".join(
        str(one[name]) for name in ("at", "what", "who", "rule", "words") if one.get(name)
    )
    fill = "#fff" if is_hollow else hue
    return (
        f'<circle cx="{x:.1f}" cy="{y:g}" r="4" fill="{fill}" stroke="{hue}" stroke-width="1.5">'
        f"<title>{escape(told)}</title></circle>"
    )


def _bar(start: float, end: float, y: float, hue: str) -> str:
    width = max(end - start, 1.0)
    return (
        f'<rect x="{start:.1f}" y="{y - 3:g}" width="{width:.1f}" height="6" fill="{hue}"'
        ' fill-opacity="0.35"/>'
    )


def _text(x: float, y: float, told: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" fill="#14181f">{escape(told)}</text>'


def _counted(name: str, rows: Sequence[Row]) -> str:
    filtered = sum(1 for row in rows if row.get("filter_code"))
    numbers = (len(rows) - filtered, filtered, len(rows))
    cells = "".join(f'<td class="n">{number}</td>' for number in numbers)
    return f"<tr><th>{escape(name.replace('_', ' '))}</th>{cells}</tr>"


def _table(
    headings: Sequence[str], rows: Iterable[Sequence[Any]], *, is_filtered: bool = False
) -> str:
    row_begins = '<tr class="filtered">' if is_filtered else "<tr>"
    lines = [
        row_begins + "".join(f"<td>{escape(_told(value))}</td>" for value in row) + "</tr>"
        for row in rows
    ]
    if not lines:
        return "<p>Nothing.</p>"
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in headings)
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>"


def _cut(number: int) -> str:
    if number <= MOMENTS_MAX:
        return ""
    return f"<p>The first {MOMENTS_MAX} are here; tables/timeline.csv has all.</p>"


def _told(value: object) -> str:
    return "" if value is None else str(value)
