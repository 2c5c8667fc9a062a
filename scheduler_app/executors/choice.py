"""The executor that the settings name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from celery.app import app_or_default
from django.conf import settings

from scheduler_app.executors.celery import CeleryExecutor
from scheduler_app.executors.local import LocalExecutor
from scheduler_app.executors.local_wire import socket_folder

if TYPE_CHECKING:
    from scheduler_app.executors.interface import Executor


def chosen_executor() -> Executor:
    """What ``DAYLIGHT_EXECUTOR`` asks for. Raises ``local_wire.NoFolder``."""
    if settings.EXECUTOR == "local":
        return LocalExecutor(socket_folder(settings.DATA_DIR))
    return CeleryExecutor(app_or_default())
