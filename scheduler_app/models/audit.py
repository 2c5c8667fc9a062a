"""What people did and must know of: freezes, audit entries, cases, incidents."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from scheduler_app.models import standing
from scheduler_app.models.standing import times_index


class Freeze(models.Model):
    """A mark that holds a scope: nothing in it starts until it is thawed."""

    scope_kind = models.CharField(max_length=16)  # task_instance, task, run, flow, shard, all
    scope_id = models.CharField(max_length=280, default="", blank=True)
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
            times_index("freeze", "created_at", "ended_at"),
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
        indexes = [
            models.Index(fields=["object_kind", "object_id"], name="audit_of_object"),
            models.Index(fields=["flow_id", "-id"], name="audit_of_flow"),
            times_index(
                *("audit", "at"),
                finds={"actor": standing.WORDS, "action": standing.FEW_WORDS},
            ),
        ]


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
    """A condition that a person must know of; one open row per kind and subject.

    One that comes back soon after its end is the same row again, and ``count`` grows.
    """

    kind = models.CharField(max_length=40)  # one of rules/incidents.py
    subject = models.CharField(max_length=250)
    message = models.TextField()
    raised_at = models.DateTimeField()
    resolved_at = models.DateTimeField(null=True)
    resolution = models.TextField(default="", db_default="", blank=True)  # how it ended
    count = models.IntegerField(default=1, db_default=1)  # how often it has come up
    # What it is about; null: the whole stack. No constraint: it outlives what it tells of.
    flow_id = models.CharField(max_length=250, null=True)  # noqa: DJ001 - null: not about a flow
    run_id = models.BigIntegerField(null=True)
    shard = models.IntegerField(null=True)
    lease_token = models.BigIntegerField(null=True)  # of the lease under which it was decided
    acknowledged_at = models.DateTimeField(null=True)
    acknowledged_by = models.CharField(max_length=250, default="", db_default="", blank=True)
    acknowledge_note = models.TextField(default="", db_default="", blank=True)
    # How often it was told of while it lasted, when last, and whether its end was.
    told_count = models.IntegerField(default=0, db_default=0)
    told_at = models.DateTimeField(null=True)
    is_end_told = models.BooleanField(default=False, db_default=False)

    class Meta:
        db_table = "incident"
        constraints = [
            models.UniqueConstraint(
                fields=["kind", "subject"],
                condition=Q(resolved_at__isnull=True),
                name="incident_open_unique",
            ),
        ]
        indexes = [
            # the newest of a subject: does it come back?
            models.Index(fields=["kind", "subject", "-id"], name="incident_of_subject"),
            models.Index(fields=["flow_id", "-id"], name="incident_of_flow"),
            # that nobody was told of yet
            models.Index(fields=["id"], condition=Q(told_count=0), name="incident_untold"),
            # whose end is still to be told
            models.Index(
                fields=["resolved_at"],
                condition=Q(resolved_at__isnull=False, is_end_told=False),
                name="incident_end_untold",
            ),
            times_index(
                *("incident", "raised_at", "resolved_at"),
                finds={"run_id": standing.LONG_NUMBERS, "subject": standing.KEYS},
            ),
        ]


class Alert(models.Model):
    """One telling of an incident through one notifier: what, to whom, how often tried, what came of it.

    The row is the outbox: whoever has claimed it sends it, and it is sent at least once.
    """

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="alerts")
    about = models.CharField(max_length=10)  # opened, reminder, resolved
    number = models.IntegerField()  # tells one telling of the same sort from the next
    notifier_key = models.CharField(max_length=64)  # sha256 of the notifier
    notifier = models.JSONField()  # its description, secrets by name
    state = models.CharField(max_length=10, default="waiting")  # waiting, sent, failed
    tries = models.IntegerField(default=0)
    due_at = models.DateTimeField()  # of the next try; while one is claimed, when it counts as lost
    claimed_by = models.UUIDField(null=True)  # of one claim
    letter = models.UUIDField(null=True)  # several that went out as one have the same
    said = models.JSONField(default=list)  # [{"at","said"}], the newest tries
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "alert"
        constraints = [
            # Each telling is told to each once.
            models.UniqueConstraint(
                fields=["incident", "about", "number", "notifier_key"], name="alert_unique"
            ),
            models.CheckConstraint(
                condition=Q(state="waiting", ended_at__isnull=True)
                | Q(state__in=["sent", "failed"], ended_at__isnull=False),
                name="alert_ended_when_over",
            ),
        ]
        indexes = [
            models.Index(
                fields=["due_at"], condition=Q(ended_at__isnull=True), name="alert_waiting"
            ),
            times_index(
                *("alert", "created_at", "ended_at"),
                finds={"state": standing.FEW_WORDS, "about": standing.FEW_WORDS},
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
