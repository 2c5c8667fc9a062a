"""``audit visibility`` of a stack's database, without a process of its own: that costs as much as a stack."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from io import StringIO
from typing import TYPE_CHECKING, Any

from django.core.management import call_command
from django.db import DEFAULT_DB_ALIAS, connections

from scheduler_app.launch.addresses import database_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# What lets a test that has no database of its own look into that of a stack; set by the conftest.
unblock: Callable[[], AbstractContextManager[Any]] = nullcontext


def assert_nothing_hidden(database_url: str) -> None:
    """The command finds every row of this database to stand where the facts say."""
    code, told = audit_visibility(database_url)
    assert code == 0, told


def audit_visibility(database_url: str) -> tuple[int, str]:
    """The command's exit code and what it printed."""
    out = StringIO()
    with unblock(), _looking_into(database_url):
        try:
            call_command("audit", "visibility", stdout=out)
        except SystemExit as ended:
            return int(ended.code or 0), out.getvalue()
    return 0, out.getvalue()


@contextmanager
def _looking_into(database_url: str) -> Iterator[None]:
    """What Django asks the database meanwhile, it asks this one."""
    before = connections[DEFAULT_DB_ALIAS]
    there = database_settings(database_url)
    options = {**before.settings_dict["OPTIONS"], **there["OPTIONS"]}
    made = type(before)({**before.settings_dict, **there, "OPTIONS": options}, DEFAULT_DB_ALIAS)
    connections[DEFAULT_DB_ALIAS] = made
    try:
        yield
    finally:
        connections[DEFAULT_DB_ALIAS] = before
        made.close()
