"""Note that somebody took rows away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import connection, transaction

from scheduler_app.transitions.audit import record_audit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def note_export(*, actor: str, noun: str, query: Mapping[str, Sequence[str]], rows: int) -> None:
    """The audit says who exported which rows of what, and how many."""
    with transaction.atomic():
        record_audit(
            connection.connection,
            actor=actor,
            action="export",
            object_kind="list",
            object_id=noun,
            after={"query": {name: list(values) for name, values in query.items()}, "rows": rows},
        )
