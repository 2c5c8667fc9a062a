"""Which task instance triggered which run."""

from __future__ import annotations

from django.db import models
from django.db.models import Q


class TriggeredRun(models.Model):
    """One run that a task asked for, once: in one execution of it from its beginning or last clear."""

    parent_run_id = models.BigIntegerField()
    ti_id = models.BigIntegerField()  # the task instance that asked
    attempt_id = models.UUIDField()  # of it
    budget_start = models.IntegerField()  # of the task instance then: a clear begins another one
    try_number = models.IntegerField()
    key = models.CharField(max_length=250)  # tells apart what one task asks for
    run_id = models.BigIntegerField()  # the run that came of it
    how = models.CharField(max_length=8)  # created, joined (it was there), reset (it begins anew)
    depth = models.IntegerField()  # 1: of a run that no task triggered
    waits = models.BooleanField(default=False, db_default=False)  # the task waits for its end
    on_stop = models.CharField(max_length=10)  # leave, terminate: see authoring/child_runs.py
    # Whether the run shall end with its task instance, and has to be looked at.
    is_watched = models.BooleanField(default=False, db_default=False)
    created_at = models.DateTimeField()

    class Meta:
        db_table = "triggered_run"
        constraints = [
            # However often an attempt is lost, its task asks once in a try.
            models.UniqueConstraint(
                fields=["ti_id", "budget_start", "key", "try_number"], name="triggered_run_once"
            ),
        ]
        indexes = [
            models.Index(fields=["run_id"], name="triggered_run_of_run"),
            models.Index(fields=["parent_run_id"], name="triggered_run_of_parent"),
            models.Index(fields=["id"], condition=Q(is_watched=True), name="triggered_run_watched"),
        ]
