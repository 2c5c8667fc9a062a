"""Leases on shards, their history, and take-overs."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from scheduler_app.models import standing


class Lease(models.Model):
    """The right to decide for a shard of flows; ``token`` grows at each change of holder."""

    shard = models.IntegerField(primary_key=True)
    holder = models.UUIDField(null=True)  # a job id
    token = models.BigIntegerField(default=0)
    acquired_at = models.DateTimeField(null=True)
    renewed_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField(null=True)
    # Who took it from its holder by hand; empty once somebody holds it again.
    forced_by = models.CharField(max_length=250, default="", db_default="", blank=True)

    class Meta:
        db_table = "lease"
        constraints = [
            # Part of a unique index, so that a change of token needs the exclusive row lock that
            # the proof's KEY SHARE blocks.
            models.UniqueConstraint(fields=["shard", "token"], name="lease_token_unique"),
        ]


class LeaseEvent(models.Model):
    """One change or refusal around a lease. Append-only."""

    shard = models.IntegerField()
    kind = models.CharField(max_length=16)
    holder = models.UUIDField(null=True)
    token = models.BigIntegerField()
    at = models.DateTimeField()
    detail = models.JSONField(default=dict)

    class Meta:
        db_table = "lease_event"
        indexes = [
            models.Index(fields=["shard", "-at"], name="lease_event_of_shard"),
            standing.times_index(
                *("lease_event", "at"),
                finds={
                    "token": standing.LONG_NUMBERS,
                    "kind": standing.FEW_WORDS,
                    "holder": standing.IDS,
                },
            ),
        ]


class TakeOver(models.Model):
    """One scan of a shard by its new holder; open until each of its items is decided."""

    shard = models.IntegerField()
    holder = models.UUIDField()  # a job id, as ``old_holder``
    old_token = models.BigIntegerField(null=True)
    new_token = models.BigIntegerField()
    cause = models.CharField(max_length=12, default="first")  # first, expired, released, taken_back
    old_holder = models.UUIDField(null=True)
    old_renewed_at = models.DateTimeField(null=True)
    old_expires_at = models.DateTimeField(null=True)  # a release sets it to its own moment
    acquired_at = models.DateTimeField(null=True)
    ask_id = models.UUIDField(null=True)  # of the inquiries that were made for it
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    counts = models.JSONField(default=dict)  # decision -> items

    class Meta:
        db_table = "take_over"
        indexes = [
            # the newest of a shard, and which fail-over is near a moment
            models.Index(fields=["shard", "-started_at"], name="take_over_of_shard"),
            # the newest of a cause
            models.Index(fields=["cause", "-id"], name="take_over_of_cause"),
            # what is not through yet
            models.Index(
                fields=["shard"], condition=Q(ended_at__isnull=True), name="take_over_open"
            ),
            standing.times_index(
                *("take_over", "started_at", "ended_at"),
                finds={
                    "new_token": standing.LONG_NUMBERS,
                    "holder": standing.IDS,
                    "old_holder": standing.IDS,
                },
            ),
        ]


class TakeOverItem(models.Model):
    """What a take-over found of one attempt, and what it decided."""

    take_over = models.ForeignKey(TakeOver, on_delete=models.CASCADE, related_name="items")
    attempt_id = models.UUIDField()
    # unpublished, published, running; ended or unknown: a worker runs it, no live record does
    found = models.CharField(max_length=12, default="running")
    # open, published, waiting, adopted, lost, reconciled, ghost, passed_on
    decision = models.CharField(max_length=16)
    reason = models.TextField(default="", blank=True)
    worker_job_id = models.UUIDField(null=True)  # the process that had claimed it
    hostname = models.CharField(max_length=250, null=True)  # noqa: DJ001 - null: not claimed
    pid = models.IntegerField(null=True)
    decided_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "take_over_item"
        constraints = [
            models.UniqueConstraint(
                fields=["take_over", "attempt_id"], name="take_over_item_of_attempt"
            ),
        ]
        indexes = [
            models.Index(fields=["attempt_id"], name="take_over_item_attempt"),
            standing.times_index(
                *("take_over_item", "decided_at"),
                finds={"decision": standing.FEW_WORDS, "hostname": standing.FEW_WORDS},
            ),
        ]


class Inquiry(models.Model):
    """Which attempts do you run? One question to one worker, and its answer."""

    ask_id = models.UUIDField()  # one for all workers that were asked together
    asked_by = models.UUIDField()  # a job id
    why = models.CharField(max_length=40)  # take_over, silent_attempt
    worker_job_id = models.UUIDField()
    hostname = models.CharField(max_length=250)
    pid = models.IntegerField()
    asked_at = models.DateTimeField()
    answered_at = models.DateTimeField(null=True)
    # [{"attempt_id", "pid", "is_alive", "for_s", "report_waits"}]; null until answered
    holdings = models.JSONField(null=True)

    class Meta:
        db_table = "inquiry"
        indexes = [
            models.Index(fields=["ask_id"], name="inquiry_of_ask"),
            # what a worker still has to answer
            models.Index(
                fields=["worker_job_id"],
                condition=Q(answered_at__isnull=True),
                name="inquiry_unanswered",
            ),
            # the newest answer of a worker
            models.Index(fields=["worker_job_id", "-asked_at"], name="inquiry_of_worker"),
            standing.times_index(
                "inquiry", "asked_at", "answered_at", finds={"why": standing.FEW_WORDS}
            ),
        ]
