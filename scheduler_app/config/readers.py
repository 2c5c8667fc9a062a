"""Strict readers of environment variables: a wrong value names its variable, what, and the remedy."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from django.core.exceptions import ImproperlyConfigured

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off"})


def text(name: str, default: str = "", *, environ: Mapping[str, str] = os.environ) -> str:
    """The variable without surrounding blanks; ``default`` when it is absent or empty."""
    return environ.get(name, "").strip() or default


def number(
    name: str,
    default: float,
    *,
    least: float = 0.0,
    greatest: float = math.inf,
    environ: Mapping[str, str] = os.environ,
) -> float:
    """The variable as a finite number between ``least`` and ``greatest``."""
    raw = text(name, environ=environ)
    if not raw:
        return default
    try:
        value = float(raw)
    except ValueError:
        raise ImproperlyConfigured(f"{name}={raw!r} is not a number") from None
    if not math.isfinite(value) or not least <= value <= greatest:
        raise ImproperlyConfigured(f"{name}={raw!r} must be {_between(least, greatest)}")
    return value


def integer(
    name: str,
    default: int,
    *,
    least: int = 0,
    greatest: float = math.inf,
    environ: Mapping[str, str] = os.environ,
) -> int:
    """The variable as a whole number between ``least`` and ``greatest``."""
    raw = text(name, environ=environ)
    if not raw:
        return default
    try:
        value = int(raw)
    except ValueError:
        raise ImproperlyConfigured(f"{name}={raw!r} is not a whole number") from None
    if not least <= value <= greatest:
        raise ImproperlyConfigured(f"{name}={raw!r} must be {_between(least, greatest)}")
    return value


def flag(name: str, default: bool, *, environ: Mapping[str, str] = os.environ) -> bool:
    """The variable as yes or no."""
    raw = text(name, environ=environ).lower()
    if not raw:
        return default
    if raw in _TRUE:
        return True
    if raw in _FALSE:
        return False
    raise ImproperlyConfigured(f"{name}={raw!r} must be 1 or 0")


def choice(
    name: str, default: str, choices: Sequence[str], *, environ: Mapping[str, str] = os.environ
) -> str:
    """The variable as one of ``choices``."""
    raw = text(name, default, environ=environ)
    if raw not in choices:
        raise ImproperlyConfigured(f"{name}={raw!r} must be one of {', '.join(choices)}")
    return raw


def words(
    name: str, default: Sequence[str] = (), *, environ: Mapping[str, str] = os.environ
) -> list[str]:
    """The variable as a list, split at commas."""
    raw = text(name, environ=environ)
    return [word for word in map(str.strip, raw.split(",")) if word] if raw else list(default)


def folders(name: str, *, environ: Mapping[str, str] = os.environ) -> list[Path]:
    """The variable as absolute folders, split as ``PATH`` is. Each must exist."""
    found = [
        Path(part).expanduser().absolute()
        for part in text(name, environ=environ).split(os.pathsep)
        if part.strip()
    ]
    for folder in found:
        if not folder.is_dir():
            raise ImproperlyConfigured(f"{name}: {folder} is not a folder")
    return found


def _between(least: float, greatest: float) -> str:
    if math.isinf(greatest):
        return f"at least {least:g}"
    return f"between {least:g} and {greatest:g}"
