"""The environment that code of flow authors sees: the stack's own, less secrets and addresses."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_SECRET: Final = re.compile(
    r".*_URL|PG[A-Z]+|DAYLIGHT_.*(SECRET|PASSWORD|TOKEN|KEY).*", re.IGNORECASE
)


def is_secret(name: str) -> bool:
    """Whether user code must not see this variable."""
    return _SECRET.fullmatch(name) is not None


def task_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What is left of the environment for user code."""
    return {name: value for name, value in environment.items() if not is_secret(name)}
