"""What tasks save while they run: checkpoints with their history, progress, and pushed values."""

from __future__ import annotations

from django.db import models


class Checkpoint(models.Model):
    """A value that outlives the attempt which saved it, at ``(scope, owner, key)``.

    ``scope`` is task, flow or name; the owner is the id of a task instance, a flow's id or a name. A
    clear that keeps no checkpoints makes those of scope task ``cleared``: no attempt finds them.
    ``version`` counts the saves. Who saved is told by values, without a constraint: a checkpoint of a
    flow outlives runs.
    """

    scope = models.CharField(max_length=10)
    owner = models.CharField(max_length=250)
    key = models.CharField(max_length=250)
    value = models.JSONField()
    version = models.BigIntegerField()
    flow_id = models.CharField(max_length=250)  # of the attempt that saved it
    ti_id = models.BigIntegerField()
    attempt_id = models.UUIDField()
    try_number = models.IntegerField()
    saved_at = models.DateTimeField()

    class Meta:
        db_table = "checkpoint"
        constraints = [
            models.UniqueConstraint(fields=["scope", "owner", "key"], name="checkpoint_unique"),
        ]


class CheckpointSave(models.Model):
    """One save of a checkpoint; of each checkpoint the newest are kept."""

    checkpoint = models.ForeignKey(
        Checkpoint, on_delete=models.DO_NOTHING, db_index=False, related_name="saves"
    )
    version = models.BigIntegerField()
    value = models.JSONField()
    ti_id = models.BigIntegerField()
    attempt_id = models.UUIDField()
    try_number = models.IntegerField()
    resume_index = models.IntegerField()
    saved_at = models.DateTimeField()

    class Meta:
        db_table = "checkpoint_save"
        constraints = [
            models.UniqueConstraint(
                fields=["checkpoint", "version"], name="checkpoint_save_unique"
            ),
        ]
        indexes = [models.Index(fields=["ti_id"], name="checkpoint_save_of_ti")]


class Progress(models.Model):
    """How far an attempt has got, by its own word: ``done`` of ``total`` (null: unknown)."""

    attempt_id = models.UUIDField(primary_key=True)
    done = models.BigIntegerField()
    total = models.BigIntegerField(null=True)
    note = models.CharField(max_length=250)
    at = models.DateTimeField()

    class Meta:
        db_table = "progress"


class PushedValue(models.Model):
    """A value that an attempt handed out under a name, beside its result."""

    attempt_id = models.UUIDField()
    ti_id = models.BigIntegerField()
    try_number = models.IntegerField()
    fence = models.BigIntegerField()  # of the attempt: the greatest is the newest
    key = models.CharField(max_length=250)
    value = models.JSONField()
    at = models.DateTimeField()

    class Meta:
        db_table = "pushed_value"
        constraints = [
            models.UniqueConstraint(fields=["attempt_id", "key"], name="pushed_value_unique"),
        ]
        indexes = [
            models.Index(fields=["ti_id", "key", "fence"], name="pushed_value_of_ti"),
        ]
