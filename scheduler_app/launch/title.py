"""What the system's list of processes says of this one: the command line and the environment that it goes by.

A process that was divided off from another would go by the command line of that one for ever. The
kernel lets it name itself anew (Linux with checkpoint and restore, which is usual); where it does not,
processes are to be started by their own commands.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PR_SET_MM: Final = 35
_PR_SET_MM_MAP: Final = 14
_UNCHANGED: Final = 0xFFFFFFFF  # the file that it executes
# Numbers of /proc/self/stat, counted from the state of the process on.
_OF_STAT: Final = {
    "start_code": 23,
    "end_code": 24,
    "start_data": 42,
    "end_data": 43,
    "start_brk": 44,
    "start_stack": 25,
}

_texts: list[mmap.mmap] = []  # the kernel reads them for as long as the process lives


class _Map(ctypes.Structure):
    """The kernel's ``struct prctl_mm_map``."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("start_code", "end_code", "start_data", "end_data")),
        *((name, ctypes.c_uint64) for name in ("start_brk", "brk", "start_stack")),
        *((name, ctypes.c_uint64) for name in ("arg_start", "arg_end", "env_start", "env_end")),
        ("auxv", ctypes.c_void_p),
        ("auxv_size", ctypes.c_uint32),
        ("exe_fd", ctypes.c_uint32),
    )


def go_by(command: Sequence[str], environ: Mapping[str, str]) -> bool:
    """This process is listed with this command line and environment; false where that cannot be."""
    if sys.platform != "linux":
        return False
    line = _joined(command)
    surroundings = _joined([f"{name}={value}" for name, value in environ.items()])
    size = len(line) + len(surroundings) + 1
    # Private, since the kernel shows nobody what may be a file.
    text = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    text.write(line + surroundings)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(text))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.sbrk.restype = ctypes.c_void_p
    try:
        stat = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return False
    wanted = _Map(
        **{name: int(stat[at]) for name, at in _OF_STAT.items()},
        brk=libc.sbrk(0),
        arg_start=begin,
        arg_end=begin + len(line),
        env_start=begin + len(line),
        env_end=begin + len(line) + len(surroundings),
        exe_fd=_UNCHANGED,
    )
    size = ctypes.sizeof(wanted)
    if libc.prctl(_PR_SET_MM, _PR_SET_MM_MAP, ctypes.byref(wanted), ctypes.c_ulong(size), 0):
        return False
    _texts.append(text)
    return True


def _joined(words: Sequence[str]) -> bytes:
    return b"".join(os.fsencode(word) + b"\0" for word in words)
