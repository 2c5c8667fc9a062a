"""Triggers of deferred task instances."""

from __future__ import annotations

from django.db import models
from django.db.models import Q


class Trigger(models.Model):
    """What a deferred task instance waits for. Fires once, whoever saw it."""

    ti_id = models.BigIntegerField()
    run_id = models.BigIntegerField()
    shard = models.IntegerField()
    try_number = models.IntegerField()
    resume_index = models.IntegerField()
    classpath = models.CharField(max_length=500)
    kwargs = models.JSONField(default=dict)
    state = models.CharField(
        max_length=10, default="waiting"
    )  # waiting, fired, timed_out, cancelled
    is_waiting = models.BooleanField(default=True)
    due_at = models.DateTimeField(null=True)
    timeout_at = models.DateTimeField(null=True)
    triggerer_job_id = models.UUIDField(null=True)
    payload = models.JSONField(null=True)
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "trigger"
        constraints = [
            models.UniqueConstraint(
                fields=["ti_id", "try_number", "resume_index"], name="trigger_unique"
            ),
        ]
        indexes = [
            models.Index(fields=["due_at"], condition=Q(is_waiting=True), name="trigger_waiting"),
        ]
