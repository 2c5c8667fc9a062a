"""What a stack needs in its database before its processes start."""

from __future__ import annotations

from typing import Final

from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

# Held while the schema moves, so that several hosts may start at once. Any number nobody else uses.
MIGRATION_LOCK: Final = 7217081
ADMINISTRATOR: Final = "admin"


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
