"""Task instances: the compare-and-set rows of the dispatch protocol."""

from __future__ import annotations

from django.db import models
from django.db.models import Case, F, Q, When

from scheduler_app.models import laws, standing
from scheduler_app.models.run import Run
from scheduler_app.models.standing import (
    Standing,
    filtered_at_index,
    filtered_index,
    standing_complete,
    times_index,
)


class TaskInstance(Standing):
    """One task of one run and map index.

    ``is_open`` is true while the state is not terminal; it is the only column that claim or finish
    writes and an index knows, so that their updates stay HOT until the instance ends.
    """

    # No database constraint: its KEY SHARE lock on the run would sit in the hot path.
    run = models.ForeignKey(
        Run, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="tis"
    )
    shard = models.IntegerField()
    task_id = models.CharField(max_length=250)
    map_index = models.IntegerField(default=-1)  # -1: not mapped, or not expanded yet
    # What people see in place of the map index, where its task says how.
    map_label = models.CharField(max_length=250, null=True)  # noqa: DJ001 - null: it has none
    state = models.CharField(max_length=20, default="none")
    is_open = models.BooleanField(default=True)
    # The state of one that has ended, else null: an index over states that come before the end would
    # have every start write each index anew.
    ended_state = models.GeneratedField(
        expression=Case(When(is_open=False, then=F("state"))),
        output_field=models.CharField(max_length=20, null=True),
        db_persist=True,
    )
    try_number = models.IntegerField(default=0)  # of the newest attempt; 0 = none issued yet
    # A failure of a try up to this one is followed by another try; after a clear it is higher.
    max_tries = models.IntegerField(default=0)
    resume_index = models.IntegerField(default=0)
    dispatch_no = models.IntegerField(default=0)
    # The try at which the present budget of retries began (a clear starts a new one).
    budget_start = models.IntegerField(default=0)
    attempt_id = models.UUIDField(null=True)  # the current attempt
    claim_nonce = models.UUIDField(null=True)  # of the delivery that claimed it
    held_by = models.BigIntegerField(null=True)  # id of the freeze that holds it
    held_at = models.DateTimeField(null=True)  # since when some freeze holds it
    # The attempt that a hard freeze asked to stop: once it has, the instance is scheduled again.
    frozen_attempt_id = models.UUIDField(null=True)
    infra_losses = models.IntegerField(default=0)  # in this try
    pool = models.CharField(max_length=250)
    pool_slots = models.IntegerField(default=1)
    queue = models.CharField(max_length=250)
    priority = models.IntegerField(default=0)
    ready_at = models.DateTimeField(null=True)  # when its upstream let it go
    queued_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    next_retry_at = models.DateTimeField(null=True)
    # Of the last failure: why another try follows then, or none does; rules/retry.py writes and
    # tells it. Null once the next try is dispatched.
    next_retry_why = models.JSONField(null=True)
    next_method = models.CharField(max_length=250, null=True)  # noqa: DJ001 - null means: not resuming
    next_kwargs = models.JSONField(null=True)
    # A person wants it to end: whatever its live attempt comes to, no other follows. The words
    # stay until it is dispatched anew.
    stop_requested_at = models.DateTimeField(null=True)
    stop_reason = models.TextField(null=True)  # noqa: DJ001 - null: nobody asked
    # A person said what it is: {"state","actor","reason"}; while its attempt runs on, what it will be when
    # that has ended. Stays until it is dispatched or cleared.
    mark = models.JSONField(null=True)
    # What it waits for: {"code","detail","since"}; written by the scheduler when it changes.
    wait = models.JSONField(null=True)

    class Meta:
        db_table = "task_instance"
        constraints = [
            standing_complete("task_instance"),
            models.UniqueConstraint(
                fields=["run", "task_id", "map_index"], name="task_instance_unique"
            ),
            models.CheckConstraint(
                condition=laws.says(
                    "is_open",
                    "state",
                    false=["success", "failed", "skipped", "upstream_failed", "removed"],
                    true=[
                        *("none", "scheduled", "queued", "running", "restarting", "deferred"),
                        *("up_for_retry", "up_for_reschedule"),
                    ],
                ),
                name="task_instance_open_unless_terminal",
            ),
        ]
        indexes = [
            filtered_index(
                *("task_instance", "run", "shard", "task_id", "map_index"),
                "ended_state",
            ),
            filtered_at_index("task_instance", "run", "id", "shard", "task_id"),
            times_index(
                *("task_instance", "queued_at", "started_at", "ended_at"),
                finds={
                    "shard": standing.NUMBERS,
                    "map_index": standing.NUMBERS,
                    "task_id": standing.WORDS,
                    "pool": standing.FEW_WORDS,
                    "queue": standing.FEW_WORDS,
                },
            ),
            # what people named, for who looks for a part of a name
            models.Index(
                fields=["id"], condition=Q(map_label__isnull=False), name="task_instance_labelled"
            ),
            # what did not end well: few among many
            models.Index(
                fields=["ended_state", "id"],
                condition=Q(
                    ended_state__in=["failed", "upstream_failed", "skipped", "removed"],
                    filter_code__isnull=True,  # so that counts need look at nothing else
                ),
                name="task_instance_unwell",
            ),
            # unfinished work of a run; end of a run
            models.Index(fields=["run"], condition=Q(is_open=True), name="task_instance_open"),
            # what a freeze holds: nearly always empty
            models.Index(
                fields=["held_by"], condition=Q(held_by__isnull=False), name="task_instance_held"
            ),
        ]
