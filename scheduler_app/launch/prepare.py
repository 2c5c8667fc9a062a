"""What a stack needs in its database before its processes start, and the first look for a person."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from scheduler_app.models import Flow
from scheduler_app.operations.trigger_run import trigger_run
from scheduler_app.rules.errors import Conflict

if TYPE_CHECKING:
    from pathlib import Path

# Held while the schema moves, so that several hosts may start at once. Any number nobody else uses.
MIGRATION_LOCK: Final = 7217081
ADMINISTRATOR: Final = "admin"
FIRST_RUN: Final = "first_up"  # run id of the run that the first `up` makes of each example


class SchemaIsNewer(RuntimeError):
    """The database was migrated by a newer checkout than this one."""


def migrate() -> None:
    """The schema is the one of this code. Raises ``SchemaIsNewer``."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [MIGRATION_LOCK])
    try:
        unknown = unknown_migrations()
        if unknown:
            raise SchemaIsNewer(
                f"The schema of this database is newer than this code ({unknown[0]} is unknown here):"
                " update the checkout, or use another data folder or database."
            )
        call_command("migrate", interactive=False, verbosity=0)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [MIGRATION_LOCK])


def unknown_migrations() -> list[str]:
    """Names of the applied migrations of known applications that this code does not have."""
    loader = MigrationLoader(connection)
    known = {*loader.disk_migrations, *loader.replacements}
    applications = {application for application, _ in loader.disk_migrations}
    applied = MigrationRecorder(connection).applied_migrations()
    return sorted(
        f"{app}.{name}" for app, name in applied if app in applications and (app, name) not in known
    )


def make_administrator(password: str, *, replace: bool) -> bool:
    """``admin`` exists and may do everything. Whether it is new; ``replace`` sets its password."""
    user = User.objects.filter(username=ADMINISTRATOR).first()
    if user is None:
        User.objects.create_superuser(username=ADMINISTRATOR, password=password)
        return True
    if replace and not user.check_password(password):
        user.set_password(password)
        user.save(update_fields=["password"])
    return False


def trigger_examples(folder: Path) -> int:
    """Each flow of this folder has had its first run; how many were triggered just now."""
    triggered = 0
    new = Flow.objects.filter(folder=str(folder), removed_at__isnull=True).exclude(
        runs__run_key=FIRST_RUN
    )
    for flow_id in new.order_by("flow_id").values_list("flow_id", flat=True):
        with contextlib.suppress(Conflict):  # another `up` on this database was first
            trigger_run(
                flow_id=flow_id,
                actor=ADMINISTRATOR,
                run_id=FIRST_RUN,
                note="Triggered by the first start, so that there is something to look at.",
            )
            triggered += 1
    return triggered
