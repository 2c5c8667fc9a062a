"""Executor events: what witnesses outside the user code say, and how each was judged."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from django.db.models.lookups import Exact

from scheduler_app.models import laws, standing
from scheduler_app.models.run import Run
from scheduler_app.models.standing import (
    Standing,
    filtered_at_index,
    filtered_index,
    standing_complete,
    times_index,
)


class ExecutorEvent(Standing):
    """One statement of a witness about an attempt. Append-only; judged once.

    ``verdict`` is ``pending`` until judged, then immutable (a database trigger refuses changes).
    Without ``attempt_id`` it is about a try of its task instance: all that its source knows.
    """

    attempt_id = models.UUIDField(null=True)
    ti_id = models.BigIntegerField(null=True)
    run = models.ForeignKey(
        Run,
        null=True,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        related_name="+",
    )
    task_id = models.CharField(max_length=250, null=True)  # noqa: DJ001 - null: parents unknown
    map_index = models.IntegerField(null=True)
    try_number = models.IntegerField(null=True)
    shard = models.IntegerField(null=True)
    kind = models.CharField(max_length=30)
    source = models.CharField(max_length=250)  # which process said it
    source_job_id = models.UUIDField(null=True)
    payload = models.JSONField(default=dict)
    dedupe_key = models.CharField(max_length=250, null=True)  # noqa: DJ001 - null: never a duplicate
    received_at = models.DateTimeField()
    verdict = models.CharField(max_length=12, default="pending")
    verdict_code = models.CharField(max_length=40, null=True)  # noqa: DJ001 - null: nothing to add
    verdict_reason = models.TextField(null=True)  # noqa: DJ001 - null until judged
    # The values that the verdict compared; the sentence is made of them.
    verdict_detail = models.JSONField(null=True)
    judged_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "executor_event"
        constraints = [
            standing_complete("executor_event"),
            models.UniqueConstraint(fields=["dedupe_key"], name="executor_event_dedupe"),
            models.CheckConstraint(
                condition=laws.same(Exact(F("verdict"), "pending"), laws.is_null("judged_at")),
                name="executor_event_judged_when_verdict",
            ),
        ]
        indexes = [
            filtered_index(
                *("executor_event", "run", "ti_id", "shard", "task_id", "kind", "verdict"),
                "received_at",
            ),
            filtered_at_index("executor_event", "run", "id", "shard", "task_id", "ti_id"),
            times_index(
                *("executor_event", "received_at"),
                finds={
                    "ti_id": standing.LONG_NUMBERS,
                    "shard": standing.NUMBERS,
                    "task_id": standing.WORDS,
                    "kind": standing.FEW_WORDS,
                    "source": standing.WORDS,
                    "verdict": standing.FEW_WORDS,
                },
            ),
            models.Index(
                fields=["shard", "id"],
                condition=Q(verdict="pending"),
                name="executor_event_pending",
            ),
            models.Index(fields=["attempt_id"], name="executor_event_of_attempt"),
            models.Index(fields=["run"], name="executor_event_of_run"),
            models.Index(
                fields=["ti_id", "try_number", "id"],
                condition=Q(attempt_id__isnull=True, ti_id__isnull=False),
                name="executor_event_by_try",
            ),
        ]
