"""Variables: values that flows share, and every change of them."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from scheduler_app.models import standing


class Variable(models.Model):
    """A named JSON value that flows read and write.

    The value of a secret is ``sealed``: encrypted under the key whose name is ``sealed_with``; then
    ``value`` is null. ``version`` counts the changes of this row.
    """

    key = models.CharField(max_length=250, primary_key=True)
    value = models.JSONField(null=True)
    sealed = models.TextField(null=True)  # noqa: DJ001 - null: in clear, in ``value``
    sealed_with = models.CharField(max_length=16, default="", blank=True)
    description = models.TextField(default="", blank=True)
    is_secret = models.BooleanField(default=False)
    version = models.BigIntegerField(default=1)
    updated_at = models.DateTimeField()
    updated_by = models.CharField(max_length=250, default="", blank=True)

    class Meta:
        db_table = "variable"
        constraints = [
            # A value is in clear or sealed, never both.
            models.CheckConstraint(
                condition=Q(sealed__isnull=True) | Q(value__isnull=True, is_secret=True),
                name="variable_sealed_or_clear",
            ),
        ]


class VariableChange(models.Model):
    """One change of a variable: who, when, why, and the values before and after.

    It outlives the variable. Of a secret the values are masked.
    """

    key = models.CharField(max_length=250)
    version = models.BigIntegerField()  # after the change
    at = models.DateTimeField()
    actor = models.CharField(max_length=250)
    action = models.CharField(max_length=12)  # created, changed, deleted
    reason = models.TextField(default="", blank=True)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    was_secret = models.BooleanField(null=True)  # null: there was none before
    is_secret = models.BooleanField(null=True)  # null: there is none after
    flow_id = models.CharField(max_length=250, null=True)  # noqa: DJ001 - null: not by a task
    attempt_id = models.UUIDField(
        null=True
    )  # of the task or callback that wrote; null: a person did
    call_id = models.UUIDField(null=True)  # of one call of user code: asked twice, it acts once

    class Meta:
        db_table = "variable_change"
        indexes = [
            # The history of one variable, newest first.
            models.Index(fields=["key", "-id"], name="variable_change_of_key"),
            models.Index(
                fields=["flow_id", "-id"],
                condition=Q(flow_id__isnull=False),
                name="variable_change_of_flow",
            ),
            standing.times_index(
                *("variable_change", "at"),
                finds={
                    "actor": standing.WORDS,
                    "action": standing.FEW_WORDS,
                    "attempt_id": standing.IDS,
                },
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["call_id"],
                condition=Q(call_id__isnull=False),
                name="variable_change_of_call",
            ),
        ]
