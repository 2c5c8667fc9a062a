"""Pools and variables: what flows share."""

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


class Variable(models.Model):
    """A named JSON value that flows read and write."""

    key = models.CharField(max_length=250, primary_key=True)
    value = models.JSONField(null=True)
    description = models.TextField(default="", blank=True)
    is_secret = models.BooleanField(default=False)
    updated_at = models.DateTimeField()
    updated_by = models.CharField(max_length=250, default="", blank=True)

    class Meta:
        db_table = "variable"
