"""``manage.py flows new``: a flow file to begin with, which registers as it is."""

from __future__ import annotations

import keyword
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from django.conf import settings
from django.db import Error

from scheduler_app.management.arguments import add_json
from scheduler_app.processes import bundles
from scheduler_app.queries import flows
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.rules.definition import FLOW_OR_TASK_ID, ID_RULE
from scheduler_app.rules.errors import Conflict, InvalidInput, NotFound
from scheduler_app.rules.schedule import check_schedule

if TYPE_CHECKING:
    from argparse import ArgumentParser

TEXT: Final = '''\
"""{about}"""

from __future__ import annotations

from scheduler_app.authoring import Context, flow, task


@task(retries=2)
def extract(ctx: Context) -> list[int]:
    """The rows of the run's date. Return small values: results are kept as JSON, to 1 MiB."""
    ctx.log.info("extracting for %s", ctx.logical_date)
    return [1, 2, 3]


@task
def transform(rows: list[int]) -> int:
    """What is made of them."""
    return sum(rows)


@task
def load(ctx: Context, total: int) -> None:
    """Where it goes. ctx.idempotency_key is the same in each try: outside effects can be told apart."""
    ctx.log.info("loading %d as %s", total, ctx.idempotency_key)


@flow({options})
def {function}() -> None:
    """{doc}"""
    load(transform(extract()))
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """The file that was written."""

    flow_id: str
    file: Path
    is_watched: bool  # whether its folder is one of the flow folders


def add_new(parser: ArgumentParser) -> None:
    """The arguments of ``flows new``."""
    parser.description = "Writes a flow file to begin with. It registers as it is; a file that is there stays as it is."
    parser.epilog = "Exit codes: 0 written, 1 refused, 2 wrong arguments."
    parser.add_argument("name", metavar="NAME", help=f"id of the flow: {ID_RULE}")
    parser.add_argument(
        "--schedule",
        metavar="CRON",
        help="a cron expression or a preset, as '0 2 * * *' or @daily; default: by hand only",
    )
    parser.add_argument(
        "--timezone", metavar="ZONE", default="UTC", help="of the schedule, as Europe/Paris"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        metavar="DIR",
        help="where to; made if it is not there. Default: the first flow folder of the stack",
    )
    add_json(parser)


def write(
    name: str, *, schedule: str | None = None, timezone: str = "UTC", folder: Path | None = None
) -> Starter:
    """The file is there. Raises ``InvalidInput``, and ``Conflict`` where something has the name."""
    if not FLOW_OR_TASK_ID.fullmatch(name):
        raise InvalidInput(f"{name!r} is no name of a flow: give {ID_RULE}.")
    check_schedule(schedule, timezone)
    where = folder or _folder()
    function = _function(name)
    # A module of the file's name would be found in place of it by whoever imports it.
    file = where / f"{function}_flow.py" if bundles.is_taken(function) else where / f"{function}.py"
    if file.exists():
        raise Conflict(f"{file} is there already. Give another name, or take it away first.")
    if (known := _defined_by(name)) is not None:
        raise Conflict(f"Flow {name} exists already: {known} defines it. Give another name.")
    try:
        where.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as out:
            out.write(_text(name, function, schedule, timezone))
    except FileExistsError:
        raise Conflict(f"{file} is there already. Give another name.") from None
    except OSError as error:
        message = f"{file} cannot be written: {error.strerror}. Say where with --folder DIR."
        raise InvalidInput(message) from None
    watched = [one.resolve() for one in settings.FLOW_FOLDERS]
    is_watched = any(file.resolve().is_relative_to(one) for one in watched)
    return Starter(flow_id=name, file=file, is_watched=is_watched)


def told(made: Starter) -> str:
    """What was written, and what to do with it."""
    shown = str(made.file)
    seen = (
        "The stack finds it within seconds."
        if made.is_watched
        else f"A stack finds it with: python3 manage.py up --flows {made.file.parent}"
    )
    return textwrap.dedent(f"""\
        {shown} defines flow {made.flow_id}.
          python3 manage.py flows check {shown}
          python3 manage.py flows test {shown}
          python3 manage.py flows trigger {made.flow_id} --follow
        {seen}""")


def _folder() -> Path:
    if not settings.FLOW_FOLDERS:
        raise InvalidInput("No flow folder is known here: say where with --folder DIR.")
    first: Path = settings.FLOW_FOLDERS[0]
    return first


def _function(name: str) -> str:
    """A name for the function, and for the file."""
    found = re.sub(r"\W", "_", name)
    if not found.isidentifier() or keyword.iskeyword(found) or found in _USED:
        found = f"flow_{found}"
    return found


_USED: Final = frozenset({"Context", "flow", "task", "extract", "transform", "load", "annotations"})


def _text(name: str, function: str, schedule: str | None, timezone: str) -> str:
    options = [] if function == name else [f'flow_id="{name}"']
    if schedule is not None:
        options.append(f'schedule="{schedule}"')
        if timezone != "UTC":
            options.append(f'timezone="{timezone}"')
    options.append('tags=["new"]')
    about = f"Flow {name}: what it does, in a sentence."
    return TEXT.format(
        about=about,
        options=", ".join(options),
        function=function,
        doc="What it does, for its page.",
    )


def _defined_by(name: str) -> str | None:
    """The file that defines a flow of this name; null where none does, or no database answers."""
    if not settings.DATABASE_URL:
        return None
    try:
        row = flows.one(EVERYTHING, name)
    except (NotFound, Error):
        return None
    return None if row.is_filtered else f"{row.folder}/{row.path}"
