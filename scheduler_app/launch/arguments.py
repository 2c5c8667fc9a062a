"""The flags of ``manage.py up``, each also a ``DAYLIGHT_...`` variable; the flag wins."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scheduler_app.launch.environment import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

EXECUTORS: Final = ("celery", "local")
PROCESSES_MAX: Final = 64  # of one kind on one machine
CONCURRENCY_MAX: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What ``up`` was asked for; every folder is absolute."""

    port: int
    data_dir: Path
    flows: tuple[Path, ...]
    examples: bool
    schedulers: int
    triggerers: int
    concurrency: int  # 0: a process per task, without limit
    executor: str
    admin_password: str  # empty: generated, or what it was


def parse(arguments: Sequence[str], environ: Mapping[str, str] = os.environ) -> Options:
    """The options. A wrong one ends the process with one line that names it (exit code 2)."""
    parser = _parser(environ)
    given = parser.parse_args(list(arguments))
    flows = given.flows or [
        part for part in environ.get("DAYLIGHT_FLOWS", "").split(os.pathsep) if part.strip()
    ]
    folders = tuple(Path(folder).expanduser().absolute() for folder in flows)
    for folder in folders:
        if not folder.is_dir():
            parser.error(f"--flows: {folder} is not a folder")
    if given.concurrency == 0 and given.executor != "local":
        parser.error("--concurrency 0 (a process per task) needs --executor local")
    return Options(
        port=given.port,
        data_dir=Path(given.data_dir).expanduser().absolute(),
        flows=folders,
        examples=not given.no_examples,
        schedulers=given.schedulers,
        triggerers=given.triggerers,
        concurrency=given.concurrency,
        executor=given.executor,
        admin_password=environ.get("DAYLIGHT_ADMIN_PASSWORD", "")
        if given.admin_password is None
        else given.admin_password,
    )


def _parser(environ: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="manage.py up",
        usage="%(prog)s [flags]",
        description="Start all of Daylight on this machine and keep it running until Ctrl-C."
        " Each flag is also read from DAYLIGHT_... (--data-dir: DAYLIGHT_DATA_DIR).",
        allow_abbrev=False,
    )

    def add(flag: str, default: str, kind: Callable[[str], object], text: str) -> None:
        variable = "DAYLIGHT_" + flag.removeprefix("--").replace("-", "_").upper()
        parser.add_argument(
            flag, type=kind, default=environ.get(variable) or default, help=f"{text} ({default})"
        )

    add("--port", "8000", _number("port", 1, 65535), "port of the dashboard and the API")
    add("--data-dir", str(ROOT / ".daylight"), str, "folder of everything that is kept")
    add("--schedulers", "1", _number("number", 1, PROCESSES_MAX), "scheduler processes")
    add("--triggerers", "1", _number("number", 1, PROCESSES_MAX), "triggerer processes")
    add(
        "--concurrency",
        "2",
        _number("number", 0, CONCURRENCY_MAX),
        "tasks at a time; 0: a process per task, without limit, with the local executor",
    )
    add(
        "--executor",
        "celery",
        _executor,
        "what carries tasks to workers: celery, or local, which needs no broker",
    )
    parser.add_argument(
        "--flows",
        action="append",
        default=[],
        metavar="DIR",
        help="a folder of flow files; repeatable",
    )
    parser.add_argument(
        "--no-examples",
        action="store_true",
        default=_is_yes(environ.get("DAYLIGHT_NO_EXAMPLES", "")),
        help="leave the example flows out",
    )
    parser.add_argument(
        "--admin-password", metavar="P", help="of the administrator `admin` (generated once)"
    )
    return parser


def _number(noun: str, least: int, greatest: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= greatest:
            raise argparse.ArgumentTypeError(
                f"{text!r} is no {noun} between {least} and {greatest}"
            )
        return value

    return read


def _executor(text: str) -> str:
    if text not in EXECUTORS:
        raise argparse.ArgumentTypeError(
            f"there is no executor {text!r}; choose {' or '.join(EXECUTORS)}"
        )
    return text


def _is_yes(text: str) -> bool:
    return text.strip().lower() in {"1", "true", "yes", "on"}
