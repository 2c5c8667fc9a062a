"""What acts over the API are asked with, and how terminating answers."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers


class ActRequestSerializer(serializers.Serializer[dict[str, Any]]):
    """Why, unless it is only a preview."""

    reason = serializers.CharField(
        required=False, allow_blank=True, default="", trim_whitespace=False
    )
    dry_run = serializers.BooleanField(required=False, default=False)


class SubjectSerializer(serializers.Serializer[Any]):
    """One task instance, and what becomes of it or why it is left alone."""

    id = serializers.IntegerField()
    task_id = serializers.CharField()
    map_index = serializers.IntegerField()
    state = serializers.CharField()
    effect = serializers.CharField()


class TerminationPlanSerializer(serializers.Serializer[Any]):
    """What terminating does."""

    run = serializers.IntegerField(source="run_id")
    included = SubjectSerializer(many=True)
    excluded = SubjectSerializer(many=True)
    dry_run = serializers.BooleanField()
