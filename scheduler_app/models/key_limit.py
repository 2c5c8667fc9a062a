"""Limits of keys, as operators set them over what the flows say, and every key that is in use."""

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


class LimitedKey(models.Model):
    """A key that an operator set, that somebody holds or waits for. Read only: a view, by a migration."""

    key = models.CharField(max_length=250, primary_key=True)
    slots = models.IntegerField(null=True)  # null: as the flows say
    # The rule of an operator for all that begin so, where it is that which holds.
    rule = models.CharField(max_length=250, null=True)  # noqa: DJ001 - null: there is none
    is_set = models.BooleanField()  # by an operator, for itself
    description = models.TextField()
    held = models.IntegerField()  # executions that hold a slot
    waiting = models.IntegerField()  # task instances that wait for one
    waits_since = models.DateTimeField(null=True)  # of whoever waits for longest

    class Meta:
        db_table = "limited_key"
        managed = False
