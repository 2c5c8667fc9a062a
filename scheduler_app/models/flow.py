"""Flows, their immutable versions, and the files that define them."""

from __future__ import annotations

from django.db import models


class Bundle(models.Model):
    """The source of a version: the flow file and the modules that it imports beside it."""

    digest = models.CharField(max_length=64, primary_key=True)  # sha256 of the content
    main_path = models.CharField(max_length=500)  # of the flow file, inside the archive
    archive = models.BinaryField()  # a zip with fixed times: same content, same bytes
    created_at = models.DateTimeField()

    class Meta:
        db_table = "bundle"


class Flow(models.Model):
    """A named graph of tasks with a schedule; what it is now is its current version."""

    flow_id = models.CharField(max_length=250, primary_key=True)
    shard = models.IntegerField()
    is_paused = models.BooleanField(default=False)  # no new scheduled runs; manual ones are allowed
    current_version = models.ForeignKey(
        "FlowVersion", null=True, on_delete=models.PROTECT, related_name="+"
    )
    folder = models.CharField(max_length=1000, default="")  # flow folder that it was found in
    path = models.CharField(max_length=500, default="")  # of its file, inside the folder
    description = models.TextField(default="", blank=True)
    owner = models.CharField(max_length=250, default="", blank=True)
    tags = models.JSONField(default=list)
    # The cursor of the schedule: the interval whose run is created next, due at its end.
    next_interval_start = models.DateTimeField(null=True)
    next_interval_end = models.DateTimeField(null=True)
    # The interval of the newest scheduled run; the cursor never goes back before it.
    last_interval_start = models.DateTimeField(null=True)
    last_interval_end = models.DateTimeField(null=True)
    # It stands in line: intervals that are due from here on wait for room under max_active_runs.
    in_line_from = models.DateTimeField(null=True)
    # Since when its schedule goes on without a stop: unpaused or thawed; null: as long as it exists.
    scheduled_since = models.DateTimeField(null=True)
    frozen_at = models.DateTimeField(null=True)
    removed_at = models.DateTimeField(null=True)  # its file no longer defines it
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        db_table = "flow"
        indexes = [
            # due schedules of a shard
            models.Index(
                fields=["shard", "next_interval_end"],
                condition=models.Q(
                    is_paused=False, removed_at__isnull=True, next_interval_end__isnull=False
                ),
                name="flow_due",
            ),
        ]


class FlowVersion(models.Model):
    """One immutable, content-addressed picture of a flow's graph and source."""

    flow = models.ForeignKey(Flow, on_delete=models.PROTECT, related_name="versions")
    number = models.IntegerField()  # 1, 2, ... within the flow
    digest = models.CharField(max_length=64)
    definition = models.JSONField()  # rules.definition.to_dict
    bundle = models.ForeignKey(Bundle, on_delete=models.PROTECT)
    created_at = models.DateTimeField()

    class Meta:
        db_table = "flow_version"
        constraints = [
            models.UniqueConstraint(fields=["flow", "digest"], name="flow_version_digest"),
            models.UniqueConstraint(fields=["flow", "number"], name="flow_version_number"),
        ]


class FlowFile(models.Model):
    """One file of a flow folder: when it was loaded last, and what was wrong with it."""

    folder = models.CharField(max_length=1000)
    path = models.CharField(max_length=500)
    digest = models.CharField(max_length=64, default="")  # of the bytes that were loaded last
    flow_ids = models.JSONField(default=list)
    # [{"file","line","message","remedy"}]; empty when the last load was clean
    errors = models.JSONField(default=list)
    load_duration_s = models.FloatField(null=True)
    loaded_at = models.DateTimeField(null=True)
    removed_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "flow_file"
        constraints = [
            models.UniqueConstraint(fields=["folder", "path"], name="flow_file_path"),
        ]
