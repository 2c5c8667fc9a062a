"""Every record that carries a standing, as rows of one shape: a view over the tables of all nouns."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from django.db import models
from django.db.models import Q

from scheduler_app.models.run import Run
from scheduler_app.models.standing import Standing
from scheduler_app.rules import visibility

if TYPE_CHECKING:
    from collections.abc import Iterable


NUMBERED: Final = (
    *(visibility.RUN, visibility.RUN_ATTEMPT),
    *(visibility.TASK_INSTANCE, visibility.EXECUTOR_EVENT),
)
NUMBER_LENGTH: Final = 19  # digits: fewer fit a column
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Record(Standing):
    """One record of any noun, with its standing. Read only; the view is made by a migration."""

    key = models.CharField(max_length=300, primary_key=True)  # noun and id, as "attempt:0198..."
    noun = models.CharField(max_length=20)
    record_id = models.CharField(max_length=250)
    number = models.BigIntegerField(null=True)  # its id, where that is a number
    at = models.DateTimeField(null=True)  # when it was set aside; of a current one, when it came
    came_at = models.DateTimeField(null=True)
    flow_id = models.CharField(max_length=250, null=True)  # noqa: DJ001 - null: of no run; see run
    run = models.ForeignKey(
        Run, null=True, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+"
    )
    ti_id = models.BigIntegerField(null=True)
    task_id = models.CharField(max_length=250, null=True)  # noqa: DJ001 - null: not of a task
    map_index = models.IntegerField(null=True)
    attempt_id = models.UUIDField(null=True)
    hostname = models.CharField(max_length=250, null=True)  # noqa: DJ001 - null: no process is known
    pid = models.IntegerField(null=True)
    shard = models.IntegerField(null=True)
    kind = models.CharField(max_length=30, null=True)  # noqa: DJ001 - null: the noun has no kinds
    state = models.CharField(max_length=20, null=True)  # noqa: DJ001 - null: the noun has no states
    ran = models.BooleanField()  # user code of its own was seen to run

    class Meta:
        db_table = "record"
        managed = False


def with_keys(keys: Iterable[str]) -> Q:
    """The records with these keys, found by the ids of their own tables: no index is over keys."""
    found = Q(pk__in=[])
    for key in keys:
        noun, _, record_id = key.partition(":")
        if noun in NUMBERED and record_id.isdecimal() and len(record_id) < NUMBER_LENGTH:
            found |= Q(noun=noun, number=int(record_id), key=key)
        elif noun == visibility.ATTEMPT and _UUID.fullmatch(record_id):
            found |= Q(noun=noun, attempt_id=record_id, key=key)
        elif noun in (visibility.FLOW, visibility.JOB) and "\x00" not in record_id:
            found |= Q(noun=noun, record_id=record_id, key=key)
    return found


class Reviewed(models.Model):
    """A person has looked at a filtered record or a ghost: who, when, and what they made of it."""

    key = models.CharField(max_length=300)  # noun and id, as ``Record.key``; "ghost:12" for a ghost
    actor = models.CharField(max_length=250)
    note = models.TextField(default="", blank=True)
    at = models.DateTimeField()

    class Meta:
        db_table = "reviewed"
        constraints = [models.UniqueConstraint(fields=["key"], name="reviewed_of_record")]
