"""Attempts: one row per dispatch, written before its message exists; and what they printed."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from scheduler_app.models import laws, standing
from scheduler_app.models.run import Run
from scheduler_app.models.standing import (
    Standing,
    filtered_at_index,
    filtered_index,
    standing_complete,
    times_index,
)
from scheduler_app.models.task_instance import TaskInstance


class Attempt(Standing):
    """One decision to execute a task instance, and what came of it. The row is the outbox too.

    ``is_live`` is true until it ended. Parents are null for a ghost, and have no database
    constraint, so that an execution nobody issued can be stored.
    """

    id = models.UUIDField(primary_key=True)  # uuid7; also the id of the Celery task
    ti = models.ForeignKey(
        TaskInstance,
        null=True,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        related_name="attempts",
    )
    run = models.ForeignKey(
        Run,
        null=True,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        related_name="attempts",
    )
    task_id = models.CharField(max_length=250, null=True)  # noqa: DJ001 - null: a ghost without parents
    map_index = models.IntegerField(null=True)
    kind = models.CharField(max_length=10, default="task")
    shard = models.IntegerField(null=True)
    try_number = models.IntegerField(null=True)
    resume_index = models.IntegerField(null=True)
    dispatch_no = models.IntegerField(null=True)
    run_attempt = models.IntegerField(null=True)
    lease_token = models.BigIntegerField(null=True)  # of the lease that decided; never changes
    fence = models.BigIntegerField(null=True)  # grows with every attempt of the task instance
    queue = models.CharField(max_length=250, default="default")
    pool = models.CharField(max_length=250, default="default")
    pool_slots = models.IntegerField(default=1)
    limit_keys = models.JSONField(null=True)  # keys that it holds a slot of while it is live
    state = models.CharField(max_length=10)
    is_live = models.BooleanField(default=True)
    outcome = models.CharField(max_length=12, null=True)  # noqa: DJ001 - null until ended
    # Ended by its own report: at most one per (ti, try_number, resume_index).
    is_accepted = models.BooleanField(default=False)
    outcome_reason = models.TextField(null=True)  # noqa: DJ001 - null: nothing to add
    result = models.JSONField(null=True)
    error = models.JSONField(null=True)  # {"type","message","traceback","bases"}
    nonce = models.UUIDField(null=True)  # of the delivery that claimed it
    worker_job_id = models.UUIDField(null=True)
    hostname = models.CharField(max_length=250, null=True)  # noqa: DJ001 - null until claimed
    pid = models.IntegerField(null=True)  # of the process that ran the user code
    issued_at = models.DateTimeField(null=True)
    published_at = models.DateTimeField(null=True)
    publish_count = models.IntegerField(default=0)
    started_at = models.DateTimeField(null=True)
    heartbeat_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    stop_requested_at = models.DateTimeField(null=True)
    stop_reason = models.TextField(null=True)  # noqa: DJ001 - null: not asked to stop
    # Of one that a clear set aside, or stops first: {"clear","actor","reason","new_run_attempt"}, the
    # last null where the clear began no run attempt.
    cleared = models.JSONField(null=True)
    # Of a callback: {"on","index","name","state","of","reason"}: what is called, and why. Of a task
    # whose claim must issue callbacks: {"on_execute": [names]}.
    callback = models.JSONField(null=True)
    # The transition that a callback is about, and which of its callables this is.
    callback_key = models.CharField(max_length=250, null=True)  # noqa: DJ001 - null: no callback

    class Meta:
        db_table = "attempt"
        constraints = [
            standing_complete("attempt"),
            # At most one attempt of a task instance is current.
            models.UniqueConstraint(
                fields=["ti"],
                condition=Q(kind="task", filter_code__isnull=True),
                name="attempt_current_unique",
            ),
            # At most one result is accepted per logical execution.
            models.UniqueConstraint(
                fields=["ti", "try_number", "resume_index"],
                condition=Q(kind="task", is_accepted=True),
                name="attempt_accepted_unique",
            ),
            # One transition calls each callable once; again only after a loss.
            models.UniqueConstraint(
                fields=["callback_key", "dispatch_no"],
                condition=Q(callback_key__isnull=False),
                name="attempt_callback_unique",
            ),
            models.CheckConstraint(
                condition=Q(
                    laws.says("is_live", "state", false=["ended"], true=["issued", "running"]),
                    laws.same(laws.is_null("outcome"), F("is_live")),
                )
                & (Q(is_live=True) | Q(ended_at__isnull=False)),
                name="attempt_ended_has_outcome",
            ),
        ]
        indexes = [
            filtered_index(
                *("attempt", "run", "ti", "shard", "task_id", "map_index", "kind"),
                *("outcome", "issued_at", "ended_at"),
            ),
            filtered_at_index("attempt", "run", "id", "shard", "task_id", "ti"),
            times_index(
                *("attempt", "issued_at", "started_at", "ended_at"),
                finds={
                    "fence": standing.LONG_NUMBERS,
                    "shard": standing.NUMBERS,
                    "map_index": standing.NUMBERS,
                    "try_number": standing.NUMBERS,
                    "task_id": standing.WORDS,
                    "hostname": standing.FEW_WORDS,
                    "worker_job_id": standing.IDS,
                },
            ),
            # few among many, where flows have callbacks at all
            models.Index(fields=["id"], condition=Q(kind="callback"), name="attempt_callbacks"),
            # what did not end well: few among many
            models.Index(
                fields=["outcome", "id"],
                condition=Q(
                    outcome__in=["failed", "deferred", "rescheduled", "lost", "terminated"],
                    filter_code__isnull=True,
                ),
                name="attempt_unwell",
            ),
            # everything live of a shard: publish, sweep, take over, count pool use
            models.Index(fields=["shard"], condition=Q(is_live=True), name="attempt_live"),
            models.Index(fields=["ti"], name="attempt_of_ti"),
            models.Index(fields=["run"], name="attempt_of_run"),
        ]


class AttemptLogChunk(models.Model):
    """Part of what an attempt printed, any bytes, at its offset."""

    attempt_id = models.UUIDField()
    start_offset = models.BigIntegerField()
    data = models.BinaryField()
    at = models.DateTimeField()

    class Meta:
        db_table = "attempt_log_chunk"
        constraints = [
            models.UniqueConstraint(
                fields=["attempt_id", "start_offset"], name="attempt_log_chunk_offset"
            ),
        ]
