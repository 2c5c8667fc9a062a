"""Guards of automatic actions: their limits, what was done under them, and what waits for a person."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from scheduler_app.models import standing


class Guard(models.Model):
    """What an operator set for a flow or the whole installation, and a kind of action or all kinds.

    An empty ``flow_id`` means the installation, an empty ``kind`` every kind. A null limit is not set
    here: the wider row, the flow's definition or the setting holds.
    """

    flow_id = models.CharField(max_length=250, default="", blank=True)
    kind = models.CharField(max_length=20, default="", blank=True)  # run_retry, clear
    is_stopped = models.BooleanField(default=False)  # the kill switch
    cooldown_s = models.FloatField(null=True)  # between two actions
    actions_max = models.IntegerField(null=True)  # in the window
    window_s = models.FloatField(null=True)
    runs_max = models.IntegerField(null=True)  # that one action may touch
    task_instances_max = models.IntegerField(null=True)  # likewise
    reason = models.TextField(default="", blank=True)
    actor = models.CharField(max_length=250)
    updated_at = models.DateTimeField()

    class Meta:
        db_table = "guard"
        constraints = [
            models.UniqueConstraint(fields=["flow_id", "kind"], name="guard_unique"),
        ]


class AutomaticAction(models.Model):
    """One automatic action that was carried out; written in its transaction. Append-only."""

    at = models.DateTimeField()
    flow_id = models.CharField(max_length=250)
    kind = models.CharField(max_length=20)
    run_id = models.BigIntegerField()  # the first that it touched
    run_count = models.IntegerField(default=1)
    task_instance_count = models.IntegerField()
    actor = models.CharField(max_length=250)
    reason = models.TextField(default="", blank=True)

    class Meta:
        db_table = "automatic_action"
        indexes = [
            # how many there were of a kind in a window, and when the last one was
            models.Index(fields=["flow_id", "kind", "-at"], name="automatic_action_recent"),
            standing.times_index(
                *("automatic_action", "at"),
                finds={
                    "run_id": standing.LONG_NUMBERS,
                    "kind": standing.FEW_WORDS,
                    "actor": standing.WORDS,
                },
            ),
        ]


class Review(models.Model):
    """Something that a guard left for a person to decide; one open row for the same request."""

    guard = models.CharField(max_length=60)  # that stopped it
    action = models.CharField(max_length=20, default="", db_default="")  # that waits
    object_kind = models.CharField(max_length=30)
    object_id = models.CharField(max_length=250)
    flow_id = models.CharField(max_length=250, null=True)  # noqa: DJ001 - null: not about a flow
    request_key = models.CharField(
        max_length=64, default="", db_default=""
    )  # same request, same key
    request = models.JSONField(null=True)  # what would be done
    summary = models.TextField()
    asked_by = models.CharField(max_length=250, default="", db_default="", blank=True)
    reason = models.TextField(default="", db_default="", blank=True)  # that it was asked for with
    times = models.IntegerField(default=1, db_default=1)  # that it was asked for
    state = models.CharField(max_length=12, default="open")  # open, approved, dismissed, resolved
    created_at = models.DateTimeField()
    last_at = models.DateTimeField(null=True)  # asked for again; null: once only
    ended_at = models.DateTimeField(null=True)
    decided_by = models.CharField(max_length=250, default="", blank=True)
    note = models.TextField(default="", blank=True)
    outcome = models.JSONField(null=True)  # of an approved one: what was done

    class Meta:
        db_table = "review"
        constraints = [
            models.UniqueConstraint(
                fields=["action", "object_kind", "object_id", "request_key"],
                condition=Q(state="open"),
                name="review_open_unique",
            ),
        ]
        indexes = [
            models.Index(fields=["flow_id", "-id"], name="review_of_flow"),
            standing.times_index(
                *("review", "created_at", "ended_at"),
                finds={
                    "object_id": standing.KEYS,
                    "guard": standing.FEW_WORDS,
                    "action": standing.FEW_WORDS,
                    "asked_by": standing.WORDS,
                    "state": standing.FEW_WORDS,
                },
            ),
        ]
