"""Child processes that end with their parent, whatever it dies of."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from typing import IO, TYPE_CHECKING, Final

from scheduler_app.launch.accounts import credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from scheduler_app.launch.accounts import Account

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
ADOPTION_POLL_S: Final = 0.001
# Loaded before any fork: between fork and exec nothing may be imported.
_prctl: Final = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)


def spawn(
    command: Sequence[str],
    *,
    log: IO[bytes],
    environ: Mapping[str, str],
    cwd: Path,
    account: Account | None = None,
    on_parent_death: signal.Signals = signal.SIGKILL,
    stdin: bytes | None = None,
) -> subprocess.Popen[bytes]:
    """A running child whose output goes to ``log``, in a process group of its own.

    A terminal's Ctrl-C reaches its parent only. On Linux the kernel sends it ``on_parent_death``
    when the *thread* that called this ends, so call it from the main thread.
    """
    child = subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=dict(environ),
        cwd=cwd,
        process_group=0,
        preexec_fn=_die_with(os.getpid(), on_parent_death),  # noqa: PLW1509 - calls prctl only
        **credentials(account),
    )
    if stdin is not None:
        assert child.stdin is not None, "a pipe was asked for"
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(stdin)
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
    return child


def stop(child: subprocess.Popen[bytes], how: signal.Signals, *, grace_s: float) -> bool:
    """The child has ended. Whether it did so by itself within ``grace_s``; else it was killed."""
    if child.poll() is not None:
        return True
    child.send_signal(how)
    try:
        child.wait(grace_s)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
        return False
    return True


def die_with(parent: int) -> None:
    """This process, just forked, is killed when its parent's calling thread ends (on Linux)."""
    ask_kernel = _die_with(parent, signal.SIGKILL)
    if ask_kernel is not None:
        ask_kernel()


def can_adopt() -> bool:
    """Whether this system gives orphans to those of their forebears that ask for them."""
    return sys.platform == "linux" and _prctl is not None


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """Processes below this one that lose their parent become its children, for as long as this lasts."""
    assert _prctl is not None, "it can adopt"
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        _prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def adopted_by(parent: int, *, within_s: float) -> bool:
    """Whether this process, whose own parent is about to end, is the child of that one now."""
    deadline_s = time.monotonic() + within_s
    while os.getppid() != parent:
        if time.monotonic() > deadline_s:
            return False
        time.sleep(ADOPTION_POLL_S)
    return True


def _die_with(parent: int, how: signal.Signals) -> Callable[[], None] | None:
    """Runs in the child before exec, after it changed its user (which would undo the wish)."""
    if sys.platform != "linux" or _prctl is None:
        return None

    def ask_kernel() -> None:
        _prctl(_PR_SET_PDEATHSIG, int(how), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)  # the parent died before the wish was known

    return ask_kernel
