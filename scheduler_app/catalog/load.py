"""Flow files are loaded side by side, each in a process of its own with a time limit."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.processes.task_environment import task_environment
from scheduler_app.rules.definition import FlowDefinition, from_dict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PARALLEL: Final = max(2, os.cpu_count() or 1)
ANSWER_BYTES_MAX: Final = 128 * 1024 * 1024
# What finds this product's own modules in the loading process.
_CHECKOUT: Final = str(Path(__file__).resolve().parents[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What loading one flow file found. Its faults are as ``FlowFile.errors`` stores them."""

    folder: Path
    path: str
    flows: tuple[FlowDefinition, ...] = ()
    faulty_flow_ids: tuple[str, ...] = ()  # defined, with a fault: their last good version stays
    faults: tuple[dict[str, Any], ...] = ()
    sources: Mapping[str, bytes] = field(default_factory=dict)
    duration_s: float = 0.0
    is_loaded: bool = True  # false: nothing is known of what the file defines


def load_each(files: Sequence[tuple[Path, str]], *, limit_s: float) -> Iterator[Loaded]:
    """One result per (folder, path), as each is ready; none takes longer than the limit."""
    if not files:
        return
    with ThreadPoolExecutor(max_workers=PARALLEL, thread_name_prefix="load") as pool:
        for future in as_completed(
            [pool.submit(load, folder, path, limit_s=limit_s) for folder, path in files]
        ):
            yield future.result()


def load(folder: Path, path: str, *, limit_s: float) -> Loaded:
    """The file was imported in a process of its own, which has ended."""
    began = time.monotonic()
    reader, writer = os.pipe()
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "scheduler_app.catalog.load_file",
            str(folder),
            path,
            str(writer),
            str(limit_s),
        ],
        cwd=_CHECKOUT,
        env={**task_environment(os.environ), "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(writer,),
        process_group=0,
    ) as process:
        os.close(writer)
        try:
            answer = _read(reader, process, deadline=began + limit_s)
        finally:
            os.close(reader)
            _end(process)
    duration_s = time.monotonic() - began
    if answer is None:
        return Loaded(
            folder=folder,
            path=path,
            faults=(_without_answer(path, process.returncode, duration_s, limit_s),),
            duration_s=duration_s,
            is_loaded=False,
        )
    return Loaded(
        folder=folder,
        path=path,
        flows=tuple(from_dict(flow) for flow in answer["flows"]),
        faulty_flow_ids=tuple(answer.get("faulty", ())),
        faults=tuple(answer["faults"]),
        sources={name: base64.b64decode(text) for name, text in answer["sources"].items()},
        duration_s=duration_s,
        is_loaded=bool(answer["sources"]),
    )


def _read(
    reader: int, process: subprocess.Popen[bytes], *, deadline: float
) -> dict[str, Any] | None:
    """The whole answer; null if the process ended, or its time was up, before it was whole."""
    data = b""
    os.set_blocking(reader, False)
    with selectors.DefaultSelector() as selector:
        selector.register(reader, selectors.EVENT_READ)
        while (left_s := deadline - time.monotonic()) > 0:
            if not selector.select(min(left_s, 0.2)):
                if process.poll() is not None:
                    return None
                continue
            part = os.read(reader, 1 << 20)
            data += part
            length = int.from_bytes(data[:8], "big") if len(data) >= 8 else None
            if length is not None and len(data) - 8 >= length:
                answer: dict[str, Any] = json.loads(data[8 : 8 + length])
                return answer
            if not part or len(data) > ANSWER_BYTES_MAX:
                return None
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    """The process and all that it started in its group have ended."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        # One that just closed its pipe is given a moment to tell its exit code.
        process.wait(timeout=0.2)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _without_answer(
    path: str, returncode: int, duration_s: float, limit_s: float
) -> dict[str, Any]:
    if duration_s >= limit_s:
        message = f"Loading it took longer than {limit_s:g} s and was ended."
        remedy = (
            "A flow file only defines flows: move loops, waits and calls to the outside into tasks, "
            "or raise DAYLIGHT_FLOW_FILE_TIMEOUT_S."
        )
    elif returncode < 0:
        name = signal.Signals(-returncode).name
        message = f"Its process was ended by {name} while it was loaded."
        remedy = "Find what crashes the interpreter: an extension module, or a kill."
    else:
        message = f"It ended its process with exit code {returncode} while it was loaded."
        remedy = (
            "Take what ends the process, closes its files or changes the standard library"
            " (os._exit, os.close) out of the file."
        )
    return {"file": path, "line": 1, "message": message, "remedy": remedy}
