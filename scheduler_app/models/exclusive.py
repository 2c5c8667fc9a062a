"""Keys that one execution at a time may hold."""

from __future__ import annotations

from django.db import models


class Exclusive(models.Model):
    """A key and the attempt that took it; it is held for as long as that attempt is live."""

    key = models.CharField(max_length=250, primary_key=True)
    attempt_id = models.UUIDField()
    at = models.DateTimeField()

    class Meta:
        db_table = "exclusive"
