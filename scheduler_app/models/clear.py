"""What clears would do, as it was shown, and what they did."""

from __future__ import annotations

from django.db import models
from django.db.models import Q


class ClearBatch(models.Model):
    """One clear of several runs: its plans, one a run, are carried out one after the other.

    It is begun once, and may be gone on with by anybody until every plan was carried out or refused.
    """

    id = models.UUIDField(primary_key=True)
    asked = models.JSONField()  # how its runs and task instances were chosen
    options = models.JSONField()
    hash = models.CharField(max_length=64)  # of the hashes of its plans
    actor = models.CharField(max_length=250)
    reason = models.TextField(default="", blank=True)  # of the act; empty until it is begun
    note = models.TextField(null=True)  # noqa: DJ001 - null: the runs keep the notes that they have
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    begun_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "clear_batch"
        indexes = [
            # what was begun and has not ended: nearly always empty
            models.Index(
                fields=["begun_at"],
                condition=Q(begun_at__isnull=False, ended_at__isnull=True),
                name="clear_batch_under_way",
            ),
        ]


class ClearPlan(models.Model):
    """One clear: which task instances it takes and why, until it is carried out or expires.

    A used plan is the record of its clear; attempts that were set aside name it.
    """

    id = models.UUIDField(primary_key=True)
    run_id = models.BigIntegerField()
    ti_ids = models.JSONField(null=True)  # that were named; null: the whole run
    options = models.JSONField()
    hash = models.CharField(max_length=64)
    content = models.JSONField()  # {"included": [...], "excluded": [...]}
    actor = models.CharField(max_length=250)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)
    # Of one that is a part of a clear of several runs; null: it stands alone.
    batch = models.ForeignKey(
        ClearBatch, null=True, on_delete=models.CASCADE, db_index=False, related_name="plans"
    )
    refusal = models.TextField(null=True)  # noqa: DJ001 - null: its part was not refused
    # The rows that it changed, as they were before: what an undo puts back. Null: it cannot be undone.
    undo = models.JSONField(null=True)
    undone_at = models.DateTimeField(null=True)
    undone_by = models.CharField(max_length=250, null=True)  # noqa: DJ001 - null: it was not undone

    class Meta:
        db_table = "clear_plan"
        indexes = [
            models.Index(
                fields=["batch", "id"],
                condition=Q(batch__isnull=False),
                name="clear_plan_of_batch",
            ),
            # the newest clear of a run that may be undone
            models.Index(
                fields=["run_id", "used_at"],
                condition=Q(used_at__isnull=False, undone_at__isnull=True, undo__isnull=False),
                name="clear_plan_undoable",
            ),
            # what is swept: plans that nobody carried out
            models.Index(
                fields=["expires_at"], condition=Q(used_at__isnull=True), name="clear_plan_unused"
            ),
        ]
