"""As whom and where embedded servers run: never as root, never in a folder that is not theirs."""

from __future__ import annotations

import hashlib
import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypedDict

# PostgreSQL refuses to run as root; these exist without our doing.
CANDIDATES: Final = ("postgres", "nobody")
ELSEWHERE: Final = Path("/var/lib/daylight")


class NoAccount(RuntimeError):
    """Started as root, and no unprivileged account exists that the servers could run as."""


class Credentials(TypedDict, total=False):
    """As whom a child runs."""

    user: int
    group: int
    extra_groups: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An existing unprivileged account."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the servers keep their files, and as whom they run."""

    folder: Path
    account: Account | None  # null: as whoever started us
    is_moved: bool  # the data folder itself is out of the account's reach


def place_for(data_dir: Path) -> Place:
    """The place of the servers of this data folder; its folder exists. Raises ``NoAccount``.

    As root it belongs to an account that is there already; where that account cannot reach the
    data folder, a folder of the same name in ``ELSEWHERE`` takes its place, and no permission of
    any other folder is touched.
    """
    data_dir.mkdir(parents=True, exist_ok=True)
    if os.geteuid() != 0:
        return Place(folder=data_dir, account=None, is_moved=False)
    moved = ELSEWHERE / hashlib.sha256(os.fsencode(data_dir.resolve())).hexdigest()[:16]
    account = _owner(data_dir / "postgres") or _owner(moved / "postgres") or _first()
    if can_reach(account, data_dir):
        return Place(folder=data_dir, account=account, is_moved=False)
    moved.mkdir(parents=True, exist_ok=True)
    return Place(folder=moved, account=account, is_moved=True)


def can_reach(account: Account, path: Path) -> bool:
    """Whether the account may pass through every folder down to ``path`` and into it."""
    done = subprocess.run(
        ["/bin/sh", "-c", 'test -x "$1"', "sh", str(path)],
        cwd="/",
        check=False,
        **credentials(account),
    )
    return done.returncode == 0


def credentials(account: Account | None) -> Credentials:
    """The arguments of ``subprocess`` that make a child run as the account."""
    if account is None:
        return {}
    return {"user": account.uid, "group": account.gid, "extra_groups": []}


def _first() -> Account:
    for name in CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name=name, uid=entry.pw_uid, gid=entry.pw_gid)
    raise NoAccount(
        "Started as root, and neither `postgres` nor `nobody` exists to run PostgreSQL as:"
        " start as another user, or set DATABASE_URL and BROKER_URL to real servers."
    )


def _owner(folder: Path) -> Account | None:
    """The account that a folder of an earlier start belongs to."""
    try:
        uid = folder.stat().st_uid
    except OSError:
        return None
    if uid == 0:
        return None
    entry = pwd.getpwuid(uid)
    return Account(name=entry.pw_name, uid=uid, gid=entry.pw_gid)
