"""What tasks save while they run, as JSON: progress, checkpoints, pushed values."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers


class ProgressSerializer(serializers.Serializer[Any]):
    """How far an attempt has got, by its own word; ``total`` null: it did not say."""

    done = serializers.IntegerField()
    total = serializers.IntegerField(allow_null=True)
    note = serializers.CharField()
    at = serializers.DateTimeField()


class CheckpointSerializer(serializers.Serializer[Any]):
    """A value that outlives attempts; ``version`` counts its saves."""

    id = serializers.IntegerField()
    scope = serializers.CharField()
    owner = serializers.CharField()
    key = serializers.CharField()
    value = serializers.JSONField()
    version = serializers.IntegerField()
    attempt_id = serializers.UUIDField()
    try_number = serializers.IntegerField()
    saved_at = serializers.DateTimeField()


class CheckpointSaveSerializer(serializers.Serializer[Any]):
    """One save of a checkpoint."""

    version = serializers.IntegerField()
    value = serializers.JSONField()
    ti = serializers.IntegerField()
    attempt_id = serializers.UUIDField()
    try_number = serializers.IntegerField()
    resume_index = serializers.IntegerField()
    saved_at = serializers.DateTimeField()


class PushedSerializer(serializers.Serializer[Any]):
    """A value that an attempt handed out under a key."""

    key = serializers.CharField()
    value = serializers.JSONField()
    at = serializers.DateTimeField()


class ArtifactSerializer(serializers.Serializer[Any]):
    """What an attempt shows under a key: a link ({"url"}), a table ({"columns", "rows"}), a note ({"text"})."""

    key = serializers.CharField()
    kind = serializers.CharField()
    title = serializers.CharField()
    body = serializers.JSONField()
    try_number = serializers.IntegerField()
    attempt_id = serializers.UUIDField()
    at = serializers.DateTimeField()
    is_newest = serializers.BooleanField()
