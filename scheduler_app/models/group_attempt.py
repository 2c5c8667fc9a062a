"""Attempts of transactional groups: how often a group of a run was begun, and what came of it."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from scheduler_app.models.run import Run


class GroupAttempt(models.Model):
    """1, and one more each time that the group is retried whole, or cleared after it had ended.

    Written by the scheduler with the tick that begins, ends or retries the group. Groups without
    ``retry`` have none.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="group_attempts")
    group_id = models.CharField(max_length=250)
    number = models.IntegerField()
    # The attempt at which the present budget began, less one: a clear starts a new budget.
    budget_start = models.IntegerField(default=0)
    cause = models.CharField(max_length=40)  # begun, retry, clear
    state = models.CharField(max_length=16)  # running, up_for_retry, success, failed
    reason = models.TextField(default="", blank=True)  # how it ended, in words
    is_current = models.BooleanField(default=True)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    retry_at = models.DateTimeField(null=True)  # when the next one begins

    class Meta:
        db_table = "group_attempt"
        constraints = [
            models.UniqueConstraint(
                fields=["run", "group_id", "number"], name="group_attempt_number"
            ),
            models.UniqueConstraint(
                fields=["run", "group_id"],
                condition=Q(is_current=True),
                name="group_attempt_current",
            ),
        ]
