"""Secrets at rest: sealed under the newest key of a ring, opened with whichever key of it fits.

The ring, newest first: the keys of ``DAYLIGHT_VARIABLE_KEYS``, or the lines of ``variable-keys`` in
the data folder; and last a key that follows from the secret key of the installation, which serves
until the first rotation. The file is looked at again when it changed, so a rotation needs no restart.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings

from scheduler_app.rules.errors import NotAllowed

if TYPE_CHECKING:
    from pathlib import Path

KEY_BYTES: Final = 32
NAME_CHARACTERS: Final = 12
FILE: Final = "variable-keys"
_DERIVED_FOR: Final = b"daylight variables 1"


class CannotOpen(NotAllowed):
    """A secret cannot be opened with the keys of this host."""

    code = "cannot_open"


class NoKey(NotAllowed):
    """There is no key on this host that secrets could be sealed under."""

    code = "no_key"


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the ring, in the form that Fernet takes."""

    name: str  # tells keys apart, and nothing of them
    fernet: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A value under a key."""

    text: str
    key_name: str


def seal(variable: str, value: Any) -> Sealed:
    """The encoded value, sealed for this variable alone. Raises ``NoKey``."""
    keys = ring()
    if not keys:
        raise NoKey(
            "There is no key to seal a secret under. Set DAYLIGHT_SECRET_KEY, or"
            " DAYLIGHT_VARIABLE_KEYS, to the same text on every host."
        )
    text = json.dumps([variable, value], ensure_ascii=False)
    token: bytes = _fernet(keys[0].fernet).encrypt(text.encode("utf-8", "surrogatepass"))
    return Sealed(text=token.decode("ascii"), key_name=keys[0].name)


def open_sealed(variable: str, text: str) -> Any:
    """The encoded value. Raises ``CannotOpen``."""
    from cryptography.fernet import InvalidToken  # noqa: PLC0415 - only where there are secrets

    for key in ring():
        try:
            plain: bytes = _fernet(key.fernet).decrypt(text.encode())
        except InvalidToken:
            continue
        name, value = json.loads(plain.decode("utf-8", "surrogatepass"))
        if name == variable:
            return value
    raise CannotOpen(
        f"The secret {variable!r} cannot be opened with the keys of this host. Give it the keys that"
        " the others have: DAYLIGHT_VARIABLE_KEYS, or the data folder's variable-keys and secret-key."
    )


def ring() -> tuple[Key, ...]:
    """The keys, newest first; the first one seals."""
    given = tuple(settings.VARIABLE_KEYS)
    if not given:
        path = settings.DATA_DIR / FILE
        given = _lines(path, _stamp(path))
    own = () if settings.SECRET_KEY_IS_OWN else (_derived(settings.SECRET_KEY),)
    return (*map(_key, given), *own)


def add_key() -> Key:
    """A new key seals from now on, in this data folder; older ones still open.

    Raises ``NotAllowed`` where the keys come from the environment.
    """
    if settings.VARIABLE_KEYS:
        raise NotAllowed(
            "The keys come from DAYLIGHT_VARIABLE_KEYS: put a new one in front there, restart the"
            " processes, and then run this again with --reseal-only."
        )
    path = settings.DATA_DIR / FILE
    new = secrets.token_urlsafe(KEY_BYTES)
    _write(path, (new, *_lines(path, _stamp(path))))
    return _key(new)


def drop_old_keys() -> int:
    """Only the newest key of the data folder is left; how many went."""
    path = settings.DATA_DIR / FILE
    kept = _lines(path, _stamp(path))
    if len(kept) > 1:
        _write(path, kept[:1])
    return max(0, len(kept) - 1)


def _write(path: Path, lines: tuple[str, ...]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in lines))
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_ino


@cache
def _lines(path: Path, stamp: tuple[int, int]) -> tuple[str, ...]:
    """The keys of the file as it was at ``stamp``."""
    if stamp == (0, 0):
        return ()
    text = path.read_text(encoding="utf-8")
    return tuple(line for line in map(str.strip, text.splitlines()) if line)


@cache
def _key(text: str) -> Key:
    """Any text makes a key; the digest makes it as long as Fernet wants it."""
    digest = hashlib.sha256(text.encode()).digest()
    name = hashlib.sha256(b"name of " + digest).hexdigest()[:NAME_CHARACTERS]
    return Key(name, base64.urlsafe_b64encode(digest))


@cache
def _derived(secret_key: str) -> Key:
    digest = hashlib.pbkdf2_hmac("sha256", secret_key.encode(), _DERIVED_FOR, 100_000)
    return _key(digest.hex())


@cache
def _fernet(key: bytes) -> Any:
    from cryptography.fernet import Fernet  # noqa: PLC0415 - only where there are secrets

    return Fernet(key)
