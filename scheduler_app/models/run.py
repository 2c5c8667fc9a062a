"""Runs and their attempts."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from scheduler_app.models import laws, standing
from scheduler_app.models.flow import Flow, FlowVersion
from scheduler_app.models.standing import (
    Standing,
    filtered_at_index,
    filtered_index,
    standing_complete,
    times_index,
)


class Run(Standing):
    """One execution of a flow for a logical date. It executes the version it was created with."""

    # The index of newest runs of a flow begins with it.
    flow = models.ForeignKey(Flow, on_delete=models.PROTECT, db_index=False, related_name="runs")
    run_key = models.CharField(max_length=250)  # every surface calls it run_id
    shard = models.IntegerField()  # stored: the number of shards may change later
    run_type = models.CharField(max_length=16)
    state = models.CharField(max_length=16)
    is_active = models.BooleanField(default=True)  # queued or running
    logical_date = models.DateTimeField(null=True)
    data_interval_start = models.DateTimeField(null=True)
    data_interval_end = models.DateTimeField(null=True)
    run_attempt = models.IntegerField(default=1)
    # Without an index: versions are never deleted.
    version = models.ForeignKey(
        FlowVersion, on_delete=models.PROTECT, db_index=False, related_name="+"
    )
    conf = models.JSONField(default=dict)
    note = models.TextField(default="", blank=True)
    actor = models.CharField(max_length=250, default="", blank=True)  # who or what asked for it
    state_reason = models.CharField(max_length=250, default="", blank=True)
    created_at = models.DateTimeField()
    queued_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    deadline_at = models.DateTimeField(null=True)  # by its flow's run_timeout: it is ended then
    late_at = models.DateTimeField(null=True)  # by its flow's deadline: a person is told then
    is_late_judged = models.BooleanField(default=False, db_default=False)
    frozen_at = models.DateTimeField(null=True)
    # A person said how it ends, or ended it: {"state","actor","reason","callbacks"}. While it is active, it
    # ends so when the last of its attempts has ended. Stays until something of it is cleared.
    mark = models.JSONField(null=True)
    backfill_id = models.BigIntegerField(null=True)  # that made it, or had it run again
    retry_count = models.IntegerField(default=0)
    # Grows whenever an act moves what has ended in it, for those that keep it in memory.
    revision = models.IntegerField(default=0, db_default=0)
    retry_at = models.DateTimeField(null=True)  # when its policy begins the next run attempt
    # Why it waits for that, or why none follows.
    retry_reason = models.CharField(max_length=250, default="", db_default="", blank=True)
    # A person ended it or part of it: its policy keeps out. Empty: nobody did.
    retry_barred = models.CharField(max_length=250, default="", db_default="", blank=True)

    class Meta:
        db_table = "run"
        constraints = [
            standing_complete("run"),
            models.UniqueConstraint(fields=["flow", "run_key"], name="run_key_unique"),
            # One schedule never runs twice for a date, whoever decides.
            models.UniqueConstraint(
                fields=["flow", "logical_date"],
                condition=Q(run_type="scheduled", filter_code__isnull=True),
                name="run_logical_date_unique",
            ),
            models.CheckConstraint(
                condition=Q(
                    laws.says(
                        "is_active",
                        "state",
                        false=["success", "failed"],
                        true=["queued", "running"],
                    ),
                    laws.same(laws.is_null("ended_at"), F("is_active")),
                ),
                name="run_ended_when_terminal",
            ),
        ]
        indexes = [
            filtered_index("run", "flow", "shard", "run_type", "state", "created_at", "ended_at"),
            filtered_at_index("run", "id", "flow", "shard"),
            times_index(
                *("run", "logical_date", "created_at", "queued_at", "started_at", "ended_at"),
                finds={
                    "shard": standing.NUMBERS,
                    "run_key": standing.KEYS,
                    "version": standing.NUMBERED,
                    "run_type": standing.FEW_WORDS,
                },
            ),
            models.Index(
                fields=["id"],
                condition=Q(state="failed", filter_code__isnull=True),
                name="run_failed",
            ),
            # those that failed lately, and how many
            models.Index(
                F("ended_at").desc(nulls_last=True),
                F("id").desc(),
                include=["frozen_at"],
                condition=Q(state="failed", filter_code__isnull=True),
                name="run_failed_lately",
            ),
            # what a freeze holds: nearly always empty
            models.Index(fields=["id"], condition=Q(frozen_at__isnull=False), name="run_frozen"),
            # the sweep over active runs, per shard
            models.Index(fields=["shard", "id"], condition=Q(is_active=True), name="run_active"),
            # deadlines that are still to be looked at
            models.Index(
                fields=["shard", "late_at"],
                condition=Q(late_at__isnull=False, is_late_judged=False),
                name="run_late",
            ),
            # newest runs of a flow; limits per flow
            models.Index(fields=["flow", "-id"], name="run_of_flow"),
            # the runs of a backfill
            models.Index(
                fields=["backfill_id"],
                condition=Q(backfill_id__isnull=False),
                name="run_of_backfill",
            ),
            # runs that wait for their next run attempt
            models.Index(
                fields=["shard", "retry_at"],
                condition=Q(retry_at__isnull=False),
                name="run_retry_due",
            ),
            # triggers that wait for the run of a date
            models.Index(fields=["flow", "logical_date"], name="run_of_date"),
        ]


class RunAttempt(Standing):
    """1, and one more for each clear or run-level retry of the whole run."""

    run = models.ForeignKey(
        Run, on_delete=models.CASCADE, db_index=False, related_name="attempts_of_run"
    )
    number = models.IntegerField()
    cause = models.CharField(max_length=40)  # created, clear, run_retry
    actor = models.CharField(max_length=250, default="", blank=True)
    reason = models.TextField(default="", db_default="", blank=True)  # why it began
    state = models.CharField(max_length=16)
    outcome_reason = models.CharField(max_length=250, default="", db_default="", blank=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "run_attempt"
        constraints = [
            standing_complete("run_attempt"),
            models.UniqueConstraint(fields=["run", "number"], name="run_attempt_number"),
        ]
        indexes = [
            filtered_index("run_attempt", "run"),
            filtered_at_index("run_attempt", "run", "id"),
            times_index(
                *("run_attempt", "started_at", "ended_at"), finds={"state": standing.FEW_WORDS}
            ),
        ]
