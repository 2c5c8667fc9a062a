"""What acts over the API are asked with, and how terminating, freezing and thawing answer."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from scheduler_app.rules.freezing import Mode


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


class FreezeRequestSerializer(ActRequestSerializer):
    """Why, how, and until when."""

    mode = serializers.ChoiceField(
        choices=[mode.value for mode in Mode], required=False, default=Mode.DRAIN.value
    )
    until = serializers.DateTimeField(required=False, allow_null=True, default=None)


class HeldSerializer(SubjectSerializer):
    """One task instance of a freeze; ``state`` is the one beneath the mark."""

    run = serializers.IntegerField(source="run_id")


class FreezePlanSerializer(serializers.Serializer[Any]):
    """What freezing does. At most 200 task instances are named; ``held_count`` counts all."""

    freeze = serializers.IntegerField(source="freeze_id", allow_null=True)
    scope_kind = serializers.CharField(source="scope.kind")
    scope_id = serializers.CharField(source="scope.id")
    mode = serializers.CharField()
    until = serializers.DateTimeField(source="until_at", allow_null=True)
    flow_count = serializers.IntegerField()
    run_count = serializers.IntegerField()
    held_count = serializers.IntegerField()
    stopped_count = serializers.IntegerField()
    by_state = serializers.DictField(child=serializers.IntegerField())
    included = HeldSerializer(many=True)
    excluded = HeldSerializer(many=True)
    dry_run = serializers.BooleanField()


class ThawPlanSerializer(serializers.Serializer[Any]):
    """What thawing does. At most 200 task instances are named; the counts count all."""

    freezes = serializers.ListField(source="freeze_ids", child=serializers.IntegerField())
    scope_kind = serializers.CharField(source="scope.kind")
    scope_id = serializers.CharField(source="scope.id")
    run_count = serializers.IntegerField()
    released_count = serializers.IntegerField()
    kept_count = serializers.IntegerField()
    waiting_count = serializers.IntegerField()
    by_state = serializers.DictField(child=serializers.IntegerField())
    included = HeldSerializer(many=True)
    excluded = HeldSerializer(many=True)
    dry_run = serializers.BooleanField()
