"""What people did and must know of: freezes, audit entries, cases, incidents."""

from __future__ import annotations

from django.db import models
from django.db.models import Q


class Freeze(models.Model):
    """A mark that holds a scope: nothing in it starts until it is thawed."""

    scope_kind = models.CharField(max_length=16)  # task_instance, run, flow, shard, all
    scope_id = models.CharField(max_length=250, default="", blank=True)
    mode = models.CharField(max_length=8, default="drain")  # drain, hard
    actor = models.CharField(max_length=250)
    reason = models.TextField()
    until_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "freeze"
        indexes = [
            models.Index(
                fields=["scope_kind"], condition=Q(ended_at__isnull=True), name="freeze_live"
            ),
        ]


class Audit(models.Model):
    """One act: who, what, on what, why, before and after. Append-only."""

    at = models.DateTimeField()
    actor = models.CharField(max_length=250)
    action = models.CharField(max_length=60)
    object_kind = models.CharField(max_length=30)
    object_id = models.CharField(max_length=250)
    flow_id = models.CharField(max_length=250, null=True)  # noqa: DJ001 - null: not about a flow
    reason = models.TextField(default="", blank=True)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)

    class Meta:
        db_table = "audit"
        indexes = [models.Index(fields=["object_kind", "object_id"], name="audit_of_object")]


class Case(models.Model):
    """One investigation."""

    title = models.CharField(max_length=250)
    state = models.CharField(max_length=12, default="open")
    opened_by = models.CharField(max_length=250)
    opened_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True)
    notes = models.TextField(default="", blank=True)

    class Meta:
        db_table = "case_file"


class Incident(models.Model):
    """A condition of the stack that a person must know of; one open row per kind and subject."""

    kind = models.CharField(max_length=40)  # nobody_listens, mass_heartbeat_loss, ...
    subject = models.CharField(max_length=250)
    message = models.TextField()
    raised_at = models.DateTimeField()
    resolved_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "incident"
        constraints = [
            models.UniqueConstraint(
                fields=["kind", "subject"],
                condition=Q(resolved_at__isnull=True),
                name="incident_open_unique",
            ),
        ]


class Counter(models.Model):
    """A counter of the metrics page, shared by every process."""

    name = models.CharField(max_length=120)
    labels = models.CharField(max_length=250, default="", blank=True)
    value = models.BigIntegerField(default=0)

    class Meta:
        db_table = "counter"
        constraints = [models.UniqueConstraint(fields=["name", "labels"], name="counter_unique")]


class Installation(models.Model):
    """The random identity of this database's content; part of what a claim compares."""

    id = models.UUIDField(primary_key=True)
    created_at = models.DateTimeField()
    # Flows are hashed into so many shards; `leases reshard` changes it. Shards beyond it retire.
    shard_count = models.IntegerField(default=16, db_default=16)

    class Meta:
        db_table = "installation"
