"""Limits of keys, as operators set them over what the flows say."""

from __future__ import annotations

from django.db import models


class KeyLimit(models.Model):
    """How many slots a key has, whatever the flows that use it say.

    ``key`` is a whole key (``customer:acme``), or the beginning of some with ``*`` at its end
    (``customer:*``): the longest that fits holds. Where none fits, each task has its own number.
    """

    key = models.CharField(max_length=250, primary_key=True)
    slots = models.IntegerField()
    description = models.TextField(default="", blank=True)

    class Meta:
        db_table = "key_limit"
