"""Backfills: a range of dates whose runs are made on request, and what became of each date."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from scheduler_app.models import standing
from scheduler_app.models.flow import Flow, FlowVersion


class Backfill(models.Model):
    """A request for the runs of every date of a range."""

    flow = models.ForeignKey(Flow, on_delete=models.PROTECT, related_name="backfills")
    shard = models.IntegerField()  # of its flow
    version = models.ForeignKey(FlowVersion, on_delete=models.PROTECT, related_name="+")
    from_date = models.DateTimeField()  # of logical dates, both bounds included
    to_date = models.DateTimeField()
    is_backwards = models.BooleanField(default=False)  # the newest date first
    reprocess = models.CharField(max_length=16)  # none, failed, all
    max_active_runs = models.IntegerField()
    conf = models.JSONField(default=dict)
    actor = models.CharField(max_length=250)
    reason = models.TextField(default="", blank=True)
    is_active = models.BooleanField(default=True)  # dates wait, or runs that it made are active
    created_at = models.DateTimeField()
    paused_at = models.DateTimeField(null=True)
    cancelled_at = models.DateTimeField(null=True)
    cancelled_by = models.CharField(max_length=250, default="", blank=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "backfill"
        indexes = [
            models.Index(
                fields=["shard", "id"], condition=Q(is_active=True), name="backfill_active"
            ),
            models.Index(fields=["flow", "-id"], name="backfill_of_flow"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["flow"], condition=Q(is_active=True), name="backfill_active_unique"
            ),
        ]


class BackfillDate(models.Model):
    """One date of a backfill: what becomes of it, and why."""

    backfill = models.ForeignKey(
        Backfill, on_delete=models.CASCADE, db_index=False, related_name="dates"
    )
    position = models.IntegerField()  # in the order in which runs are made, from 0
    logical_date = models.DateTimeField()
    data_interval_start = models.DateTimeField()
    data_interval_end = models.DateTimeField()
    state = models.CharField(max_length=16)  # waiting, created, rerun, skipped, cancelled
    is_waiting = models.BooleanField(default=True)
    run_id = models.BigIntegerField(null=True)  # that was made, run again, or was in the way
    reason = models.CharField(max_length=250, default="", blank=True)  # of a date that got no run
    decided_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "backfill_date"
        constraints = [
            models.UniqueConstraint(
                fields=["backfill", "position"], name="backfill_date_position_unique"
            ),
        ]
        indexes = [
            models.Index(
                fields=["backfill", "position"],
                condition=Q(is_waiting=True),
                name="backfill_date_waiting",
            ),
            standing.times_index(
                "backfill_date", "logical_date", finds={"state": standing.FEW_WORDS}
            ),
        ]
