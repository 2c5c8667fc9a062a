"""Pools: slots that flows share."""

from __future__ import annotations

from django.db import models


class Pool(models.Model):
    """A number of slots that task instances share. Use is counted from live attempts."""

    name = models.CharField(max_length=250, primary_key=True)
    slots = models.IntegerField()
    description = models.TextField(default="", blank=True)
    include_deferred = models.BooleanField(default=False)

    class Meta:
        db_table = "pool"
