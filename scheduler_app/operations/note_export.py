"""Note that somebody took rows or evidence away."""

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


def note_evidence(*, actor: str, kind: str, object_id: str, content_sha256: str) -> None:
    """The audit says who took the evidence of which record, and the digest of what they got."""
    with transaction.atomic():
        record_audit(
            connection.connection,
            actor=actor,
            action="export_evidence",
            object_kind=kind,
            object_id=object_id,
            after={"content_sha256": content_sha256},
        )
