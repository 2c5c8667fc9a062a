"""Jobs: one row per process incarnation."""

from __future__ import annotations

from django.db import models
from django.db.models import Q


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
    # Of the newest heartbeat: a process that finds another one here has a twin.
    beat_nonce = models.UUIDField(null=True)
    detail = models.JSONField(default=dict)  # queues, concurrency, ...

    class Meta:
        db_table = "job"
        indexes = [
            models.Index(fields=["kind"], condition=Q(ended_at__isnull=True), name="job_alive"),
        ]
