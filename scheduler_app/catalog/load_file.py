"""The loading process: divides one off for each flow file, which imports it and says what it found.

Run as ``python -m scheduler_app.catalog.load_file DESCRIPTOR``, that of a socket over which files are
asked for, one after the other. Standard output and error belong to user code; the answer goes to the
descriptor that came with the request: eight bytes of length, then JSON. Standard input is the hand of
who asked: when it closes, that one is gone and the process ends. Nothing that a file does reaches
another: what is divided off has loaded this module and what it needs, no more, and no thread is there.
"""

from __future__ import annotations

import base64
import contextlib
import gc
import json
import os
import resource
import socket
import sys
import threading
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NoReturn

from scheduler_app.authoring.faults import Fault, Place, faults_of
from scheduler_app.processes import bundles
from scheduler_app.rules.definition import to_dict
from scheduler_app.rules.errors import DefinitionError, InvalidInput

CPU_LIMIT_FACTOR: Final = 3  # an orphan that nobody kills ends by itself
MEMORY_SHARE_MAX: Final = 0.5  # of the machine's: schedulers and workers need the rest
MESSAGE_CHARACTERS_MAX: Final = 2000


def main(arguments: list[str]) -> None:
    """Each request has been answered; ends when who asks is gone."""
    with socket.socket(fileno=int(arguments[0])) as channel:
        # What is loaded by now is shared with each process of a file: no collection writes into it.
        gc.collect()
        gc.freeze()
        while (request := _request(channel)) is not None:
            (folder, path, limit_s), (out, hand) = request
            pid = os.fork()
            if pid == 0:
                channel.close()
                _load(Path(folder), path, out, hand, float(limit_s))
            with contextlib.suppress(OSError):  # it has done so itself, or has ended
                os.setpgid(pid, pid)
            os.close(out)
            os.close(hand)
            channel.sendall(b"%d\n" % pid)
            channel.sendall(b"%d\n" % _exit_code(pid))
            if not channel.recv(1):
                return
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _exit_code(pid: int) -> int:
    """How the process ended, once it has; below 0 the signal.

    Where the system allows it, its number stays its own until who asked has ended all that it left.
    """
    if not hasattr(os, "waitid"):
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None, "it was waited for"
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _request(channel: socket.socket) -> tuple[list[Any], list[int]] | None:
    """Folder, path and time limit, and two descriptors: where the answer goes, and the asker's hand."""
    begin, descriptors, _, _ = socket.recv_fds(channel, 1, 2)
    line = _line(channel, begin) if begin else b""
    return (json.loads(line), descriptors) if line else None


def _line(channel: socket.socket, begin: bytes) -> bytes:
    """The line, which began so; empty if it does not end."""
    line = begin
    while not line.endswith(b"\n"):
        part = channel.recv(4096)
        if not part:
            return b""
        line += part
    return line


def _load(folder: Path, path: str, out: int, hand: int, limit_s: float) -> NoReturn:
    """The answer is written; the process ends at once, whatever user code left running."""
    try:
        os.setpgid(0, 0)
        os.dup2(hand, 0)
        os.close(hand)
        threading.Thread(target=_end_with_parent, daemon=True).start()
        seconds = int(limit_s * CPU_LIMIT_FACTOR) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        _bound_memory()
        answer = json.dumps(_answer(folder, path)).encode()
        data = len(answer).to_bytes(8, "big") + answer
        while data:
            data = data[os.write(out, data) :]
        os._exit(0)
    finally:
        os._exit(1)


def _bound_memory() -> None:
    """A file that takes ever more memory fails by itself; where it does not, it is the first to go."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = int(total * MEMORY_SHARE_MAX)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or hard > limit:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    with contextlib.suppress(OSError):  # no such file outside Linux
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _end_with_parent() -> None:
    while os.read(0, 1024):
        pass
    os._exit(0)


def _answer(folder: Path, path: str) -> dict[str, Any]:
    try:
        loaded = bundles.load_file(folder, path)
        imports = bundles.imports_of(folder, loaded.sources)
        # Also refuses a bundle that is too large.
        bundles.pack_sources(path, imports.sources)
    except BaseException as error:  # noqa: BLE001 - whatever user code raises is told, not passed on
        return {"flows": [], "faults": _faults(error, folder, path), "sources": {}}
    faults = loaded.faults()
    faults += [
        Fault(
            file=str(folder / path),
            line=1,
            message=f"It imports {name!r}, and an installed module of that name hides {hidden}.",
            remedy="Rename the file in the flow folder.",
        )
        for name, hidden in imports.hidden.items()
    ]
    return {
        "flows": [to_dict(flow.definition()) for flow in loaded.flows().values()],
        "faulty": [item.flow.flow_id for item in loaded.registrations if item.faults],
        "faults": [_inside(folder, fault) for fault in faults],
        "sources": {
            name: base64.b64encode(source).decode() for name, source in imports.sources.items()
        },
    }


def _faults(error: BaseException, folder: Path, path: str) -> list[dict[str, Any]]:
    place = _place_of(error, folder, Place(file=str(folder / path), line=1))
    if isinstance(error, DefinitionError):
        return [_inside(folder, fault) for fault in faults_of(error, place)]
    if isinstance(error, SyntaxError):
        is_text = "codec can't decode" in str(error.msg)
        message = f"Syntax error: {str(error.msg).rstrip('.')}."
        remedy = "Save the file as UTF-8." if is_text else "Correct the line."
        place = Place(file=error.filename or place.file, line=error.lineno or 1)
    elif isinstance(error, SystemExit):
        message = f"It calls sys.exit({error.code!r}) while it is loaded."
        remedy = "A flow file only defines flows: move the call into a task, or take it out."
    elif isinstance(error, InvalidInput):
        message, remedy = str(error), "Make the bundle smaller."
    else:
        message = f"It raises while it is loaded: {_text_of(error)}"
        remedy = _remedy_of(error, folder)
    fault = Fault(file=place.file, line=place.line, message=message, remedy=remedy)
    return [_inside(folder, fault)]


def _text_of(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception_only(error)).strip()
    except Exception:  # noqa: BLE001 - user code may have broken what this needs
        return type(error).__name__


def _remedy_of(error: BaseException, folder: Path) -> str:
    if isinstance(error, ModuleNotFoundError):
        return (
            f"Install {error.name} where schedulers and workers run, or put the module into the flow"
            " folder."
        )
    if isinstance(error, ImportError):
        if "relative import" in str(error):
            return "Files of a flow folder are modules by their own names: write import helpers."
        if str(error.path or "").startswith(str(folder.resolve())):
            return (
                "Correct the name. If the two files import each other, move what both need into a"
                " third."
            )
    if isinstance(error, MemoryError):
        return "A flow file only defines flows: move what needs so much memory into a task."
    return "Make the file importable; code that needs the outside belongs into a task."


def _place_of(error: BaseException, folder: Path, otherwise: Place) -> Place:
    """The innermost line of the flow folder that the error came through."""
    inside = [
        Place(file=frame.filename, line=frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith(f"{folder.resolve()}/") and frame.lineno
    ]
    return inside[-1] if inside else otherwise


def _inside(folder: Path, fault: Fault) -> dict[str, Any]:
    """The fault with its file as the folder's users call it."""
    values = asdict(fault)
    values["message"] = _storable(fault.message)
    values["remedy"] = _storable(fault.remedy)
    for root in (folder, folder.resolve()):
        if fault.file.startswith(f"{root}/"):
            values["file"] = fault.file[len(str(root)) + 1 :]
    return values


def _storable(text: str) -> str:
    """The text without what a JSON column refuses: messages may quote anything."""
    short = text[:MESSAGE_CHARACTERS_MAX].replace("\x00", "\\x00")
    return short.encode("utf-8", "backslashreplace").decode()


if __name__ == "__main__":
    main(sys.argv[1:])
