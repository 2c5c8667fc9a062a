"""From a claimed row to a trigger: its class, from the product or from the flow version's source."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import tuple_row

from scheduler_app.authoring.triggers import Trigger, make_trigger
from scheduler_app.processes import bundles
from scheduler_app.rules import values
from scheduler_app.rules.errors import NotFound
from scheduler_app.triggerer.steps import Owner

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import psycopg

    from scheduler_app.transitions.trigger import ClaimedTrigger

BUILT_IN: Final = "scheduler_app."
SUBJECT_CHARACTERS_MAX: Final = 250  # the column's width


def owner_of(claimed: ClaimedTrigger, enter: Callable[[], None] | None) -> Owner:
    """Whose the trigger's code is, in words that lead a person to it."""
    name = claimed.classpath.rpartition(":")[2]
    return Owner(
        trigger_id=claimed.trigger_id,
        label=f"Trigger {claimed.trigger_id} ({name}, flow {claimed.flow_id}, run {claimed.run_key},"
        f" task {claimed.task_id})",
        subject=f"{claimed.flow_id}: {name}"[:SUBJECT_CHARACTERS_MAX],
        enter=enter,
    )


def is_built_in(claimed: ClaimedTrigger) -> bool:
    """Whether the class is the product's own: nothing of the flow's source is needed."""
    return claimed.classpath.startswith(BUILT_IN)


def make(claimed: ClaimedTrigger) -> Trigger:
    """The trigger. Its flow version's modules must be the ones that imports find."""
    return make_trigger(claimed.classpath, values.decode(claimed.kwargs))


def unpack_source(
    connection: psycopg.Connection[Any], claimed: ClaimedTrigger, cache_dir: Path
) -> None:
    """The flow version's source is on this host's disk. Runs user code of no kind."""
    bundles.extract(
        claimed.bundle_digest, partial(_archive, connection, claimed.bundle_digest), cache_dir
    )


class Source:
    """Which flow version's modules imports find now; switched as steps of triggers ask for it."""

    def __init__(self, cache_dir: Path) -> None:
        self._cache_dir = cache_dir
        self._active: str | None = None

    def entrance(self, claimed: ClaimedTrigger) -> Callable[[], None]:
        """Switches to this trigger's flow version; its source has been unpacked."""
        return partial(self._enter, claimed.bundle_digest, claimed.flow_id)

    def _enter(self, digest: str, flow_id: str) -> None:
        if self._active == digest:
            return
        self._active = None
        bundles.flow_of_bundle(digest, _no_archive, flow_id, self._cache_dir)
        self._active = digest


def _no_archive() -> bytes:
    raise NotFound("The unpacked source of a flow version was removed from the data folder.")


def _archive(connection: psycopg.Connection[Any], digest: str) -> bytes:
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute("SELECT archive FROM bundle WHERE digest = %s", [digest])
        row = cursor.fetchone()
    if row is None:
        message = f"The source of the run's flow version (bundle {digest}) is no longer stored."
        raise NotFound(message)
    return bytes(row[0])
