"""Triggers of deferred task instances, and what the outside told task instances."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from scheduler_app.models import standing


class Trigger(models.Model):
    """What a deferred task instance waits for. Fires once, whoever saw it.

    ``is_waiting`` is true while its task instance waits for it: until it fired, or, where a freeze
    holds the task instance, until what it fired with (``state`` and ``payload``) is let through.
    """

    ti_id = models.BigIntegerField()
    run_id = models.BigIntegerField()
    shard = models.IntegerField()
    try_number = models.IntegerField()
    resume_index = models.IntegerField()  # of the attempt that deferred; the firing raises it
    # time: due at a moment; event: something outside tells it; watched: code of a triggerer does.
    kind = models.CharField(max_length=8, default="watched")
    classpath = models.CharField(max_length=500)
    kwargs = models.JSONField(default=dict)
    event_key = models.CharField(max_length=250, null=True)  # noqa: DJ001 - null: not of kind event
    state = models.CharField(
        max_length=10, default="waiting"
    )  # waiting, fired, failed, timed_out, cancelled
    is_waiting = models.BooleanField(default=True)
    due_at = models.DateTimeField(null=True)
    timeout_at = models.DateTimeField(null=True)
    # When a triggerer must look at it although nobody tells it anything; null: never.
    wake_at = models.DateTimeField(null=True)
    triggerer_job_id = models.UUIDField(null=True)  # the triggerer that watches it
    block_count = models.IntegerField(default=0)  # how often its code blocked a triggerer's loop
    payload = models.JSONField(null=True)  # {"event": ...} or {"error": ...}
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
            # what is due, however many wait
            models.Index(fields=["wake_at"], condition=Q(is_waiting=True), name="trigger_wake"),
            # what nobody watches, and what each triggerer watches
            models.Index(
                fields=["triggerer_job_id"],
                condition=Q(is_waiting=True, kind="watched"),
                name="trigger_watched",
            ),
            standing.times_index(
                *("trigger", "created_at", "due_at", "timeout_at"),
                finds={"run_id": standing.LONG_NUMBERS, "state": standing.FEW_WORDS},
            ),
        ]


class ExternalEvent(models.Model):
    """Something outside told a task instance something, once. Kept until a trigger takes it."""

    ti_id = models.BigIntegerField()
    key = models.CharField(max_length=250)
    payload = models.JSONField(null=True)
    actor = models.CharField(max_length=250)
    received_at = models.DateTimeField()
    trigger_id = models.BigIntegerField(null=True)  # the one that it fired
    taken_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "external_event"
        indexes = [
            # events that came before a trigger waited for them
            models.Index(
                fields=["ti_id", "id"],
                condition=Q(trigger_id__isnull=True),
                name="external_event_early",
            ),
        ]
