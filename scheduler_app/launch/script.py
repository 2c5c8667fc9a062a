"""A script of this checkout, run by a process that was divided off as if by its command line."""

from __future__ import annotations

import atexit
import os
import runpy
import sys
import threading
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler_app.launch import data_folder

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """See ``nursery.Calling``."""

    command: tuple[str, ...]  # the interpreter, the script, its arguments
    log: Path

    def follow(self, channel: Connection) -> int:
        """The script ran to its end, and its output went to the log; its exit code."""
        channel.close()
        with data_folder.open_log(self.log) as log, open(os.devnull, "rb") as nothing:
            for number, file in enumerate((nothing, log, log)):
                os.dup2(file.fileno(), number)
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__  # whatever `up` made of its own
        sys.argv[:] = self.command[1:]
        code = _run(self.command[1])
        # As an interpreter ends: threads first, then what asked to be called.
        threading._shutdown()  # type: ignore[attr-defined] # noqa: SLF001 - as multiprocessing does
        atexit._run_exitfuncs()  # noqa: SLF001 - nobody else calls them in a process that was forked
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        return code


def _run(path: str) -> int:
    """What an interpreter that runs the script exits with; what it prints about that is printed."""
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        print(error.code, file=sys.stderr)  # noqa: T201 - as the interpreter does
        return 1
    except BaseException:  # noqa: BLE001 - nobody above would tell of it
        traceback.print_exc()
        return 1
    return 0
