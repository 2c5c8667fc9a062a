"""What the supervisor needs Django for. Runs in its assistant."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import django
from django.core.exceptions import ImproperlyConfigured

from scheduler_app.launch import data_folder
from scheduler_app.launch.words import UpFailed, say

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def prepare(*, data_dir: Path, admin_password: str) -> None:
    """Schema and administrator are there. Raises ``UpFailed``."""
    try:
        django.setup()
    except ImproperlyConfigured as error:
        raise UpFailed(f"Wrong settings: {error}") from None
    from django.core.management import call_command  # noqa: PLC0415 - needs Django's applications
    from django.core.management.base import SystemCheckError  # noqa: PLC0415 - likewise
    from django.db import DatabaseError  # noqa: PLC0415 - likewise

    from scheduler_app.launch import prepare as database  # noqa: PLC0415 - likewise

    try:
        # Ours only, and silent unless something is wrong; web checks its pages itself.
        call_command("check", tags=["daylight"], stdout=io.StringIO())
        database.migrate()
        _make_administrator(data_dir, admin_password)
    except SystemCheckError as error:
        raise UpFailed(str(error).strip()) from None
    except database.SchemaIsNewer as error:
        raise UpFailed(str(error)) from None
    except DatabaseError as error:
        first_line = str(error).strip().splitlines()[0]
        raise UpFailed(f"The database cannot be prepared: {first_line}") from None


def missing(*, pids: Mapping[str, int], port: int, examples: Path | None) -> tuple[list[str], bool]:
    """What the stack still waits for, and whether first runs of the examples were triggered just now.

    They are once nothing is missing.
    """
    django.setup()
    from django.db import DatabaseError, connection  # noqa: PLC0415 - needs Django's applications

    from scheduler_app.launch import first_look, readiness  # noqa: PLC0415 - likewise

    try:
        waiting = readiness.missing(pids, port=port)
        is_first = (
            not waiting and examples is not None and first_look.trigger_examples(examples) > 0
        )
    except DatabaseError as error:
        connection.close()
        return [f"the database ({str(error).strip().splitlines()[0]})"], False
    if not waiting:
        connection.close()
    return waiting, is_first


def repeat_a_delivery() -> bool:
    """One delivery of the first runs came twice; false while it cannot. A demonstration only."""
    django.setup()
    from django.db import DatabaseError, connection  # noqa: PLC0415 - needs Django's applications

    from scheduler_app.launch import first_look  # noqa: PLC0415 - likewise

    try:
        return first_look.repeat_a_delivery()
    except DatabaseError:
        return False
    finally:
        connection.close()


def _make_administrator(data_dir: Path, given: str) -> None:
    from scheduler_app.launch import prepare as database  # noqa: PLC0415 - needs Django's applications

    if given:
        database.make_administrator(given, replace=True)
        say("Administrator: admin, with the password that was given")
        return
    path, password, is_new = data_folder.admin_password(data_dir)
    if database.make_administrator(password, replace=False) or is_new:
        say(f"Administrator: admin, password: {password} (kept in {path})")
    else:
        say(f"Administrator: admin (password in {path})")
