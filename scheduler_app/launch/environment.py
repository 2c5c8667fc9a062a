"""The environment: `.venv` in the checkout, made from the hash-locked requirements, entered by exec.

Standard library only, and quick when everything is there: two small files are read. The lock is
known by its hash, written last; an environment without it was left half-made and is made anew.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

ROOT: Final = Path(__file__).resolve().parents[2]
KINDS: Final = ("runtime", "test", "lint")  # each lock holds every pin of those before it
STAMP: Final = "daylight-lock"  # in `.venv`: kind, hash of its lock, Python version
PIP_LOG: Final = "daylight-pip.log"

_NO_NETWORK: Final = (
    "NewConnectionError",
    "Failed to establish a new connection",
    "Temporary failure in name resolution",
    "Name or service not known",
    "nodename nor servname",
    "Network is unreachable",
    "No route to host",
    "Connection refused",
    "ConnectTimeout",
    "ReadTimeout",
    "ProxyError",
)


class SetupFailed(Exception):
    """The environment could not be made; the text is one line for a person."""


def wanted(arguments: Sequence[str], environ: Mapping[str, str]) -> str:
    """The kind of environment that a command line asks for. Raises ``SetupFailed``."""
    asked = environ.get("DAYLIGHT_ENV", "")
    if asked and asked not in KINDS:
        raise SetupFailed(f"DAYLIGHT_ENV={asked!r} must be one of {', '.join(KINDS)}.")
    least = "test" if list(arguments[:1]) == ["test"] else "runtime"
    return max(asked or least, least, key=KINDS.index)


def enter(kind: str, root: Path = ROOT) -> None:
    """This process has the locked dependencies; it may have become another one to get them.

    The arguments stay as typed. Raises ``SetupFailed``.
    """
    venv = root / ".venv"
    inside = os.path.realpath(sys.prefix) == os.path.realpath(venv)
    if inside and is_stamped(root, kind):
        return
    if holds(pins(root / "requirements" / f"{kind}.txt"), installed(sys.path)):
        return
    python = ensure(kind, root)
    sys.stdout.flush()
    os.execv(python, [python, *sys.orig_argv[1:]])  # noqa: S606 - no shell is the point


def ensure(kind: str, root: Path = ROOT) -> str:
    """The Python of an environment with every pin of ``kind``; made or brought up to date if needed.

    Only one process makes it at a time; the others wait. Raises ``SetupFailed``.
    """
    python = root / ".venv" / "bin" / "python3"
    if not (is_stamped(root, kind) and python.exists()):
        try:
            with _lock(root):
                if not (is_stamped(root, kind) and python.exists()):
                    _make(kind, root, python)
        except OSError as error:
            raise SetupFailed(
                f"The environment in {root / '.venv'} cannot be made: {error}"
            ) from error
    return str(python)


def is_stamped(root: Path, kind: str) -> bool:
    """Whether `.venv` was made from the present lock of ``kind``, or of one that holds it."""
    try:
        stamped, digest, version = (root / ".venv" / STAMP).read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        return False
    inside = os.path.realpath(sys.prefix) == os.path.realpath(root / ".venv")
    if inside and version != _python_version():
        return False  # the system's Python was replaced under the environment
    return (
        stamped in KINDS
        and KINDS.index(stamped) >= KINDS.index(kind)
        and digest == lock_hash(root, stamped)
    )


def lock_hash(root: Path, kind: str) -> str:
    """The hash of the lock of ``kind``."""
    return hashlib.sha256((root / "requirements" / f"{kind}.txt").read_bytes()).hexdigest()


def pins(lock: Path) -> dict[str, str]:
    """Name to version of the pins that hold on every machine (those with a condition are left out)."""
    found = {}
    for line in lock.read_text(encoding="utf-8").splitlines():
        if "==" in line and ";" not in line and line[:1].isalnum():
            name, _, rest = line.partition("==")
            found[_normal(name)] = rest.split()[0]
    return found


def installed(folders: Iterable[str]) -> dict[str, str]:
    """Name to version of what can be imported from these folders; the first folder wins."""
    found: dict[str, str] = {}
    for folder in folders:
        for name, version in _distributions(folder or "."):
            found.setdefault(_normal(name), version)
    return found


def holds(needed: Mapping[str, str], present: Mapping[str, str]) -> bool:
    """Whether everything needed is present in just that version."""
    return all(present.get(name) == version for name, version in needed.items())


def explain(output: str) -> str:
    """One line on why pip failed, from what it printed."""
    if any(sign in output for sign in _NO_NETWORK):
        return (
            "no network: the package index cannot be reached (behind a mirror, set PIP_INDEX_URL;"
            " with wheels on disk, PIP_FIND_LINKS)"
        )
    if "DO NOT MATCH THE HASHES" in output:
        return "a downloaded package is not the one that the lock names (its hash differs)"
    if "No space left on device" in output:
        return "no space left on the disk"
    missing = [line for line in output.splitlines() if "No matching distribution found for" in line]
    if missing:
        requirement = missing[0].partition("found for ")[2].split(" ")[0]
        return f"there is no wheel of {requirement} for this Python and machine"
    errors = [line for line in output.splitlines() if line.startswith("ERROR:")]
    return errors[0].removeprefix("ERROR: ") if errors else "pip failed"


def main(arguments: Sequence[str]) -> int:
    """``python3 -m scheduler_app.launch.environment [KIND]`` makes the environment, prints its Python."""
    try:
        kind = wanted([], {"DAYLIGHT_ENV": arguments[0] if arguments else "runtime"})
        print(ensure(kind))  # noqa: T201 - the answer of the command
    except SetupFailed as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _make(kind: str, root: Path, python: Path) -> None:
    venv = root / ".venv"
    stamp = venv / STAMP
    if not (stamp.exists() and python.exists() and _runs(python)):
        _create(venv)
    stamp.unlink(missing_ok=True)
    sys.stderr.write(f"Installing the locked {kind} dependencies into {venv} (once) ...\n")
    _install(python, root / "requirements" / f"{kind}.txt", venv / PIP_LOG)
    version = _output([str(python), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
    new = stamp.with_name(f"{STAMP}.new")
    new.write_text(f"{kind} {lock_hash(root, kind)} {version}\n", encoding="utf-8")
    new.replace(stamp)


def _create(venv: Path) -> None:
    import importlib.util  # noqa: PLC0415 - not needed by the quick way
    import subprocess  # noqa: PLC0415 - likewise

    if not all(importlib.util.find_spec(module) for module in ("venv", "ensurepip")):
        version = _python_version()
        raise SetupFailed(
            f"This Python has no venv module: install the package python{version}-venv"
            f" (Debian, Ubuntu: apt-get install python{version}-venv), then run this again."
        )
    base = getattr(sys, "_base_executable", None) or sys.executable
    made = subprocess.run(
        [base, "-m", "venv", "--clear", str(venv)], capture_output=True, text=True, check=False
    )
    if made.returncode:
        lines = (made.stderr or made.stdout).strip().splitlines() or ["no reason given"]
        raise SetupFailed(f"{venv} cannot be made: {lines[-1]}")


def _install(python: Path, lock: Path, log: Path) -> None:
    import subprocess  # noqa: PLC0415 - not needed by the quick way

    command = [
        *(str(python), "-m", "pip", "install", "--require-hashes", "--only-binary", ":all:"),
        *("--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--retries", "3"),
        *("-r", str(lock)),
    ]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        check=False,
    )
    log.write_text(done.stdout, encoding="utf-8")
    if done.returncode:
        raise SetupFailed(f"The dependencies cannot be installed: {explain(done.stdout)} ({log}).")


def _lock(root: Path):  # type: ignore[no-untyped-def] # a context manager; contextlib is imported late
    import contextlib  # noqa: PLC0415 - not needed by the quick way
    import fcntl  # noqa: PLC0415 - likewise

    @contextlib.contextmanager
    def held() -> Iterator[None]:
        with (root / ".venv.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                sys.stderr.write("Another command is making the environment; waiting for it ...\n")
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    return held()


def _runs(python: Path) -> bool:
    return bool(_output([str(python), "-m", "pip", "--version"]))


def _output(command: list[str]) -> str:
    import subprocess  # noqa: PLC0415 - not needed by the quick way

    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _distributions(folder: str) -> Iterator[tuple[str, str]]:
    try:
        entries = os.listdir(folder)
    except OSError:
        return
    for entry in entries:
        if entry.endswith(".dist-info"):
            name, _, version = entry.removesuffix(".dist-info").partition("-")
            yield name, version


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _python_version() -> str:
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
