"""Leases on shards, their history, and take-overs."""

from __future__ import annotations

from django.db import models


class Lease(models.Model):
    """The right to decide for a shard of flows; ``token`` grows at each change of holder."""

    shard = models.IntegerField(primary_key=True)
    holder = models.UUIDField(null=True)  # a job id
    token = models.BigIntegerField(default=0)
    acquired_at = models.DateTimeField(null=True)
    renewed_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField(null=True)

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
        indexes = [models.Index(fields=["shard", "-at"], name="lease_event_of_shard")]


class TakeOver(models.Model):
    """One scan of a shard by its new holder."""

    shard = models.IntegerField()
    holder = models.UUIDField()
    old_token = models.BigIntegerField(null=True)
    new_token = models.BigIntegerField()
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    counts = models.JSONField(default=dict)  # {"published","waiting","adopted","lost"}

    class Meta:
        db_table = "take_over"


class TakeOverItem(models.Model):
    """What a take-over decided about one attempt."""

    take_over = models.ForeignKey(TakeOver, on_delete=models.CASCADE, related_name="items")
    attempt_id = models.UUIDField()
    decision = models.CharField(max_length=16)  # publish, wait, adopt, lost
    reason = models.TextField(default="", blank=True)

    class Meta:
        db_table = "take_over_item"
