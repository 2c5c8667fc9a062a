"""Slots that are kept for one task instance, so that every scheduler knows."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class KeptRoom(models.Model):
    """For whom what becomes free in a pool, or of a key, is kept. Holds until ``until_at``, and only while it waits.

    Written under the lock of the pool, or of all keys, by the scheduler that decides for the task
    instance, and renewed by it. At most one for each pool and key.
    """

    kind = models.CharField(max_length=8)  # pool or key
    name = models.CharField(max_length=250)
    ti_id = models.BigIntegerField()
    slots = models.IntegerField()
    priority = models.IntegerField()
    since = models.DateTimeField()  # when it began to wait
    until_at = models.DateTimeField()
    flow_id = models.CharField(max_length=250)
    task_id = models.CharField(max_length=250)

    class Meta:
        db_table = "kept_room"
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(
                condition=models.Q(kind__in=("pool", "key")), name="kept_room_kind"
            ),
            models.UniqueConstraint(fields=["kind", "name"], name="kept_room_once"),
        ]
