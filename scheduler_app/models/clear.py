"""What clears would do, as it was shown, and what they did."""

from __future__ import annotations

from django.db import models
from django.db.models import Q


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

    class Meta:
        db_table = "clear_plan"
        indexes = [
            # what is swept: plans that nobody carried out
            models.Index(
                fields=["expires_at"], condition=Q(used_at__isnull=True), name="clear_plan_unused"
            ),
        ]
