"""Ghosts: executions that no live record acknowledges, what workers report, and the audits of both."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from scheduler_app.models import standing
from scheduler_app.models.run import Run


class Ghost(models.Model):
    """One sighting, from when it was first seen until it is over.

    Names the process, the attempt that it works for, and what was compared. ``kind`` is one of
    ``rules/ghosts.py``. Seeing the same again moves ``last_seen_at`` alone.
    """

    kind = models.CharField(max_length=40)
    subject = models.CharField(max_length=250)  # what is seen: attempt and process, queue, ...
    seen_by = models.CharField(max_length=16)  # beat, claim, audit
    attempt_id = models.UUIDField(null=True)
    current_attempt_id = models.UUIDField(null=True)  # of the same task instance, if another
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
    lease_token = models.BigIntegerField(null=True)  # of the lease under which it was decided
    hostname = models.CharField(max_length=250, null=True)  # noqa: DJ001 - null: no process is known
    pid = models.IntegerField(null=True)
    worker_job_id = models.UUIDField(null=True)
    detail = models.JSONField(default=dict)  # the compared values
    first_seen_at = models.DateTimeField()
    last_seen_at = models.DateTimeField()
    policy = models.CharField(max_length=8)  # stop, leave, human
    stop_requested_at = models.DateTimeField(null=True)
    stop_requested_by = models.CharField(max_length=250, null=True)  # noqa: DJ001 - null: nobody did
    ended_at = models.DateTimeField(null=True)
    end_reason = models.CharField(max_length=250, null=True)  # noqa: DJ001 - null: it goes on

    class Meta:
        db_table = "ghost"
        constraints = [
            # The same thing is seen once at a time.
            models.UniqueConstraint(
                fields=["kind", "subject"],
                condition=Q(ended_at__isnull=True),
                name="ghost_open_unique",
            ),
            models.CheckConstraint(
                condition=Q(ended_at__isnull=True, end_reason__isnull=True)
                | Q(ended_at__isnull=False, end_reason__isnull=False),
                name="ghost_ended_has_reason",
            ),
        ]
        indexes = [
            models.Index(fields=["attempt_id"], name="ghost_of_attempt"),
            models.Index(fields=["run"], name="ghost_of_run"),
            # what is haunting now, for pages, beats and audits
            models.Index(fields=["id"], condition=Q(ended_at__isnull=True), name="ghost_open"),
            standing.times_index(
                *("ghost", "first_seen_at", "last_seen_at", "ended_at"),
                finds={
                    "ti_id": standing.LONG_NUMBERS,
                    "kind": standing.FEW_WORDS,
                    "task_id": standing.WORDS,
                    "hostname": standing.FEW_WORDS,
                    "worker_job_id": standing.IDS,
                },
            ),
        ]


class GhostAudit(models.Model):
    """The three-way audits of one scheduler within one hour: how many they were, what they compared.

    One row an hour keeps the history small; ``last`` has the numbers of the newest audit.
    """

    holder = models.UUIDField()  # job id of the scheduler
    hour = models.DateTimeField()
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()
    audits = models.IntegerField(default=1)
    compared = models.BigIntegerField(default=0)  # records, executions and messages, of all audits
    last_compared = models.IntegerField(default=0)
    last = models.JSONField(default=dict)  # what the newest audit read, by source
    open_ghosts = models.JSONField(default=dict)  # kind -> how many the newest audit found
    duration_ms = models.IntegerField(default=0)  # of the newest
    is_complete = models.BooleanField(default=True)  # every source of the newest answered

    class Meta:
        db_table = "ghost_audit"
        constraints = [
            models.UniqueConstraint(fields=["holder", "hour"], name="ghost_audit_hour_unique"),
        ]
        indexes = [models.Index(fields=["-last_at"], name="ghost_audit_newest")]


class Inventory(models.Model):
    """What a worker executes, by its own word; rewritten with every beat, also when it is nothing."""

    job_id = models.UUIDField(primary_key=True)
    hostname = models.CharField(max_length=250)
    pid = models.IntegerField()  # of the worker's main process
    at = models.DateTimeField()
    # [{"attempt","pid","age_s"}], at most 1,000
    executions = models.JSONField(default=list)

    class Meta:
        db_table = "inventory"


class TaskStats(models.Model):
    """How long one task of a flow usually runs and waits: its accepted successes, frozen time left out.

    The buckets are counts by logarithm of the duration (``rules/task_stats.py``).
    """

    flow_id = models.CharField(max_length=250)
    task_id = models.CharField(max_length=250)
    successes = models.BigIntegerField(default=0)
    run_buckets = models.JSONField(default=dict)
    queue_buckets = models.JSONField(default=dict)
    run_p50_s = models.FloatField(null=True)
    run_p99_s = models.FloatField(null=True)
    queue_p99_s = models.FloatField(null=True)
    run_max_s = models.FloatField(null=True)
    updated_at = models.DateTimeField()

    class Meta:
        db_table = "task_stats"
        constraints = [
            models.UniqueConstraint(fields=["flow_id", "task_id"], name="task_stats_of_task"),
        ]


class TaskStatsCursor(models.Model):
    """Up to which executor event ``TaskStats`` have counted; one row."""

    id = models.SmallIntegerField(primary_key=True)
    event_id = models.BigIntegerField(default=0)

    class Meta:
        db_table = "task_stats_cursor"
