"""System checks: settings that need a word before a process starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core import checks

if TYPE_CHECKING:
    from collections.abc import Sequence


@checks.register("daylight")
def secret_key_is_shared(app_configs: object, **more: Any) -> Sequence[checks.CheckMessage]:
    """The web processes of a stack sign with one key."""
    del app_configs, more
    if not (settings.IS_WEB and settings.SECRET_KEY_IS_OWN):
        return []
    return [
        checks.Warning(
            "This web process made its own secret key: logins end with it.",
            hint="Set DAYLIGHT_SECRET_KEY to the same long random text on every host.",
            id="daylight.W001",
        )
    ]
