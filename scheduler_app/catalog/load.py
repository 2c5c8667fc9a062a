"""Flow files are loaded side by side, each in a process of its own with a time limit.

What loading needs is loaded once: the process of a file is divided off one that has it.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.processes.task_environment import task_environment
from scheduler_app.rules.definition import FlowDefinition, from_dict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PARALLEL: Final = max(2, os.cpu_count() or 1)
ANSWER_BYTES_MAX: Final = 128 * 1024 * 1024
BEGINS_WITHIN_S: Final = 60.0  # on a loaded machine; an idle one needs half a second
ENDS_WITHIN_S: Final = 2.0
REAP: Final = b"r"  # one byte: the next request may follow at once
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
    idle: SimpleQueue[_Loader] = SimpleQueue()
    loaders = [_Loader() for _ in range(min(PARALLEL, len(files)))]
    for loader in loaders:
        idle.put(loader)

    def load(folder: Path, path: str) -> Loaded:
        loader = idle.get()
        try:
            return loader.load(folder, path, limit_s=limit_s)
        finally:
            idle.put(loader)

    try:
        with ThreadPoolExecutor(max_workers=len(loaders), thread_name_prefix="load") as pool:
            for future in as_completed([pool.submit(load, folder, path) for folder, path in files]):
                yield future.result()
    finally:
        for loader in loaders:
            loader.close()


class _Loader:
    """A process that has loaded all that loading needs, and divides one off for each file.

    One caller at a time. Should it end, whoever's fault that is, the next file begins another.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None

    def load(self, folder: Path, path: str, *, limit_s: float) -> Loaded:
        """The file was imported in a process of its own, which has ended."""
        request = json.dumps([str(folder), path, limit_s]).encode() + b"\n"
        began = time.monotonic()
        for is_last in (False, True):
            channel = self._begun()
            answers, answer_to = os.pipe()
            hand, parents_hand = os.pipe()
            try:
                pid = _asked(channel, request, [answer_to, hand])
                os.close(answer_to)
                os.close(hand)
                answer_to = hand = -1
                if pid is None:
                    self.close()
                    if is_last:
                        return _failed(folder, path, 1, time.monotonic() - began, limit_s)
                    continue
                began = time.monotonic()
                try:
                    answer = _read(answers, channel, deadline=began + limit_s)
                finally:
                    returncode = self._end(channel, pid)
            finally:
                for descriptor in (answers, answer_to, hand, parents_hand):
                    if descriptor >= 0:
                        os.close(descriptor)
            break
        duration_s = time.monotonic() - began
        if answer is None:
            return _failed(folder, path, returncode, duration_s, limit_s)
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

    def close(self) -> None:
        """Its process has ended."""
        if self._channel is not None:
            self._channel.close()
        if self._process is not None:
            try:
                self._process.wait(timeout=ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = self._channel = None

    def _begun(self) -> socket.socket:
        if self._process is not None and self._process.poll() is not None:
            self.close()
        if self._channel is None:
            self._channel, theirs = socket.socketpair()
            self._channel.settimeout(BEGINS_WITHIN_S)
            with theirs:
                self._process = subprocess.Popen(
                    [
                        sys.executable,
                        "-m",
                        "scheduler_app.catalog.load_file",
                        str(theirs.fileno()),
                    ],
                    cwd=_CHECKOUT,
                    env={**task_environment(os.environ), "PYTHONDONTWRITEBYTECODE": "1"},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    process_group=0,
                )
        return self._channel

    def _end(self, channel: socket.socket, pid: int) -> int:
        """The process of the file and all that it started in its group have ended; its exit code."""
        # One that just closed its pipe is given a moment to tell its exit code.
        select.select([channel], [], [], 0.2)
        # It is not reaped before it is let go: its number is nobody else's meanwhile.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        status = _number(channel)
        if status is None:
            self.close()
            return 1
        with contextlib.suppress(OSError):
            channel.sendall(REAP)
        return status


def _asked(channel: socket.socket, request: bytes, descriptors: list[int]) -> int | None:
    """The number of the process that loads the file; null if nobody takes the request."""
    try:
        socket.send_fds(channel, [request[:1]], descriptors)
        channel.sendall(request[1:])
    except OSError:
        return None
    return _number(channel)


def _number(channel: socket.socket) -> int | None:
    """The number in the next line; null where none comes."""
    line = b""
    try:
        while not line.endswith(b"\n"):
            part = channel.recv(1)
            if not part:
                return None
            line += part
        return int(line)
    except (OSError, ValueError):
        return None


def _read(reader: int, channel: socket.socket, *, deadline: float) -> dict[str, Any] | None:
    """The whole answer; null if the process ended, or its time was up, before it was whole."""
    data = b""
    os.set_blocking(reader, False)
    with selectors.DefaultSelector() as selector:
        selector.register(reader, selectors.EVENT_READ)
        while (left_s := deadline - time.monotonic()) > 0:
            if not selector.select(min(left_s, 0.2)):
                if select.select([channel], [], [], 0)[0]:  # its exit code is there
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


def _failed(folder: Path, path: str, returncode: int, duration_s: float, limit_s: float) -> Loaded:
    return Loaded(
        folder=folder,
        path=path,
        faults=(_without_answer(path, returncode, duration_s, limit_s),),
        duration_s=duration_s,
        is_loaded=False,
    )


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
