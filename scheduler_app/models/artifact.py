"""Artifacts: what attempts show of their work."""

from __future__ import annotations

from django.db import models


class Artifact(models.Model):
    """A link, table or note that an attempt shows under a key."""

    attempt_id = models.UUIDField()
    ti_id = models.BigIntegerField()
    try_number = models.IntegerField()
    fence = models.BigIntegerField()  # of the attempt: the greatest is the newest
    key = models.CharField(max_length=250)
    kind = models.CharField(max_length=10)  # link, table, markdown
    title = models.CharField(max_length=250)
    body = models.JSONField()
    at = models.DateTimeField()

    class Meta:
        db_table = "artifact"
        constraints = [
            models.UniqueConstraint(fields=["attempt_id", "key"], name="artifact_unique"),
        ]
        indexes = [models.Index(fields=["ti_id", "fence"], name="artifact_of_ti")]
