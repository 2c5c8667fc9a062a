"""Jobs: one row per process incarnation."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from scheduler_app.models import standing


class Job(models.Model):
    """A process that takes part; alive while its heartbeat is young by the database's clock."""

    id = models.UUIDField(primary_key=True)  # new at each process start
    kind = models.CharField(max_length=12)
    name = models.CharField(max_length=250, default="", blank=True)  # a label, never an owner
    hostname = models.CharField(max_length=250)
    pid = models.IntegerField()
    state = models.CharField(max_length=10, default="running")  # running, ended, dead
    started_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField()
    progress_at = models.DateTimeField()  # the loop itself got on; a side thread does not move it
    ended_at = models.DateTimeField(null=True)
    stop_requested_at = models.DateTimeField(null=True)
    stop_requested_by = models.CharField(max_length=250, default="", blank=True)
    stop_reason = models.TextField(default="", blank=True)
    # A drained scheduler gives up its shards and takes none until it is undrained; it goes on beating.
    drain_requested_at = models.DateTimeField(null=True)
    drain_requested_by = models.CharField(max_length=250, default="", db_default="", blank=True)
    drain_reason = models.TextField(default="", db_default="", blank=True)
    # Its host's wall clock minus the database's at the newest heartbeat, in seconds, and how far that
    # may be off: half of the heartbeat's way there and back.
    clock_ahead_s = models.FloatField(null=True)
    clock_within_s = models.FloatField(null=True)
    # Of the newest heartbeat: a process that finds another one here has a twin.
    beat_nonce = models.UUIDField(null=True)
    detail = models.JSONField(default=dict)  # queues, concurrency, ...

    class Meta:
        db_table = "job"
        indexes = [
            models.Index(fields=["kind"], condition=Q(ended_at__isnull=True), name="job_alive"),
            # Nothing that a heartbeat writes.
            standing.times_index(
                *("job", "started_at"),
                finds={"state": standing.FEW_WORDS, "hostname": standing.FEW_WORDS},
            ),
        ]
