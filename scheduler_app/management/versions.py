"""The versions of a flow, and what differs between two of them, as ``manage.py flows`` tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.core.management.color import supports_color

from scheduler_app.management.arguments import add_json, add_list_options, as_asked
from scheduler_app.management.output import as_json, cell, page_as_json, table, told_page
from scheduler_app.queries import flow_versions, flows, version_diffs
from scheduler_app.queries.filters import FlowVersionFilter
from scheduler_app.queries.scope import EVERYTHING

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Iterator, Sequence

    from scheduler_app.queries.flow_versions import FlowVersionRow
    from scheduler_app.queries.version_diffs import Comparison
    from scheduler_app.rules.version_diff import Change, Parts

THEY_DIFFER: Final = 3  # exit code, where it was asked for
DIGEST_CHARACTERS: Final = 12
_COLOURS: Final = {"+": "32", "-": "31", "~": "33", "@": "36"}


def add_versions(parser: ArgumentParser) -> None:
    """The arguments of ``flows versions``."""
    parser.add_argument("flow_id", metavar="FLOW")
    add_list_options(parser)


def add_diff(parser: ArgumentParser) -> None:
    """The arguments of ``flows diff``."""
    parser.description = (
        "Compares two versions of a flow: tasks, edges, schedule, parameters, options, code. Without"
        " OLD the newest version and the one before it; without NEW the old one and the newest."
    )
    parser.epilog = (
        "Exit codes: 0 done, 1 no such flow, version or run, 2 wrong arguments; with --exit-code"
        f" {THEY_DIFFER} where they differ."
    )
    parser.add_argument("flow_id", metavar="FLOW")
    parser.add_argument(
        "old", metavar="OLD", nargs="?", default="", help="number, or beginning of a digest"
    )
    parser.add_argument("new", metavar="NEW", nargs="?", default="", help="likewise")
    parser.add_argument(
        "--run",
        metavar="RUN_ID",
        default="",
        help="in place of OLD: the version that it is bound to",
    )
    parser.add_argument(
        "--exit-code", action="store_true", help=f"exit with {THEY_DIFFER} where they differ"
    )
    parser.add_argument("--no-code", action="store_true", help="leave the source out")
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="auto, the default: on a terminal",
    )
    add_json(parser)


def versions(options: dict[str, Any]) -> str:
    """The versions of the flow, newest first."""
    flow = flows.one(EVERYTHING, options["flow_id"])
    asked = FlowVersionFilter(flow_id=(flow.flow_id,), limit=options["limit"], order="-id")
    asked = as_asked(asked, options)
    page = flow_versions.page(asked, EVERYTHING)
    if options["json"]:
        return page_as_json(page)
    headings = ("VERSION", "STORED", "DIGEST", "SOURCE", "")
    lines = [
        (
            row.number,
            row.created_at,
            row.digest[:DIGEST_CHARACTERS],
            row.bundle[:DIGEST_CHARACTERS],
            "current" if row.id == flow.version_id else " ",
        )
        for row in page.rows
    ]
    return f"{table(headings, lines)}\n\n{told_page(page, 'versions', lens=asked.filtered)}"


def diff(options: dict[str, Any]) -> tuple[str, bool]:
    """The comparison that was asked for, and whether the two differ."""
    old, new = options["old"], options["new"]
    if options["run"] and old and not new:
        old, new = "", old  # the run stands in place of OLD
    found = version_diffs.of_flow(
        EVERYTHING, options["flow_id"], old=old, new=new, run_id=options["run"]
    )
    differ = found.differ
    if options["json"]:
        return as_json(as_values(found, has_code=not options["no_code"])), differ
    lines = _lines(found, run_id=options["run"], has_code=not options["no_code"])
    wanted = options["color"]
    if wanted == "always" or (wanted == "auto" and not options["no_color"] and supports_color()):
        lines = map(_coloured, lines)
    return "\n".join(lines), differ


def as_values(found: Comparison, *, has_code: bool = True) -> dict[str, Any]:
    """The comparison as JSON has it."""
    difference = found.diff
    values: dict[str, Any] = {
        "flow_id": found.new.flow_id,
        "old": _version(found.old),
        "new": _version(found.new),
        "differ": found.differ,
        "summary": difference.told,
        "tasks": difference.tasks,
        "groups": difference.groups,
        "edges_added": difference.edges_added,
        "edges_removed": difference.edges_removed,
        "schedule": difference.schedule,
        "params": difference.params,
        "options": difference.options,
    }
    if has_code:
        values["files"] = difference.files
        values["is_source_damaged"] = found.is_source_damaged
    return values


def _version(row: FlowVersionRow) -> dict[str, Any]:
    return {"number": row.number, "digest": row.digest, "created_at": row.created_at}


def _lines(found: Comparison, *, run_id: str, has_code: bool) -> Iterator[str]:
    old, new, difference = found.old, found.new, found.diff
    yield f"Flow {new.flow_id}, from version {_named(old)} to version {_named(new)}"
    if run_id:
        yield f"Run {run_id} is bound to version {old.number}."
    yield f"{difference.told[0].upper()}{difference.told[1:]}."
    yield from _parts("Tasks", difference.tasks)
    yield from _section(
        "Edges",
        [
            *(f"+ {one} -> {other}" for one, other in difference.edges_added),
            *(f"- {one} -> {other}" for one, other in difference.edges_removed),
        ],
    )
    yield from _parts("Groups", difference.groups)
    yield from _section("Schedule", [" ".join(line) for line in difference.schedule_told])
    for heading, changes in (
        ("Parameters", difference.params),
        ("Options of the flow", difference.options),
    ):
        yield from _section(heading, _changes(changes))
    if found.is_source_damaged:
        yield from _section("Code", ["The stored source of one of them cannot be read."])
    for file in difference.files if has_code else ():
        yield ""
        yield (
            "--- /dev/null" if file.state == "added" else f"--- {file.path} (version {old.number})"
        )
        yield (
            "+++ /dev/null"
            if file.state == "removed"
            else f"+++ {file.path} (version {new.number})"
        )
        yield from file.lines
        if file.note:
            yield file.note


def _named(row: FlowVersionRow) -> str:
    return f"{row.number} ({row.digest[:DIGEST_CHARACTERS]}, {cell(row.created_at)})"


def _parts(heading: str, parts: Parts) -> Iterator[str]:
    yield from _section(
        heading,
        [
            *(f"+ {name}" for name in parts.added),
            *(f"- {name}" for name in parts.removed),
            *(f"~ {one.name}: {change.told}" for one in parts.changed for change in one.changes),
        ],
    )


def _changes(changes: Sequence[Change]) -> list[str]:
    return [f"~ {change.told}" for change in changes]


def _section(heading: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield ""
        yield heading
        yield from lines


def _coloured(line: str) -> str:
    colour = _COLOURS.get(line[:1])
    return f"\x1b[{colour}m{line}\x1b[0m" if colour else line
