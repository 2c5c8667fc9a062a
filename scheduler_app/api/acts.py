"""What acts over the API are asked with, and how terminating, marking, freezing and thawing answer."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from scheduler_app.api import bodies
from scheduler_app.api.tasks_named import TasksNamedSerializer
from scheduler_app.operations.clear import NOTE_CHARACTERS_MAX
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


class MarkRequestSerializer(ActRequestSerializer):
    """Why, and as what."""

    state = serializers.CharField()
    callbacks = serializers.BooleanField(required=False, default=False)
    note = serializers.CharField(
        required=False,
        allow_null=True,
        allow_blank=True,
        default=None,
        max_length=NOTE_CHARACTERS_MAX,
        trim_whitespace=False,
        validators=[bodies.check_storable],
    )


class TaskInstanceMarkRequestSerializer(MarkRequestSerializer):
    """Why, as what, and how far from the task instance that is named."""

    include_upstream = serializers.BooleanField(required=False, default=False)
    include_downstream = serializers.BooleanField(required=False, default=False)
    include_past = serializers.BooleanField(required=False, default=False)
    include_future = serializers.BooleanField(required=False, default=False)


class RunMarkRequestSerializer(TasksNamedSerializer, TaskInstanceMarkRequestSerializer):
    """The whole run, or the task instances, tasks or group of it that are named."""

    task_instances = serializers.ListField(
        child=serializers.IntegerField(),
        required=False,
        allow_null=True,
        default=None,
        allow_empty=False,
    )


class RunsMarkRequestSerializer(MarkRequestSerializer):
    """Which runs: those that are named, or all that the address filters."""

    runs = serializers.ListField(
        child=serializers.IntegerField(), required=False, allow_null=True, default=None
    )


class TaskInstancesMarkRequestSerializer(TaskInstanceMarkRequestSerializer):
    """Which task instances, of any runs: those that are named, or all that the address filters."""

    task_instances = serializers.ListField(
        child=serializers.IntegerField(), required=False, allow_null=True, default=None
    )


class TaskInstancesActRequestSerializer(ActRequestSerializer):
    """The same, with nothing but the reason."""

    task_instances = serializers.ListField(
        child=serializers.IntegerField(), required=False, allow_null=True, default=None
    )


class MarkedSerializer(SubjectSerializer):
    """One task instance of a mark, by which rule, and what it becomes (null: it is left alone)."""

    run = serializers.IntegerField(source="run_id")
    rule = serializers.CharField()
    becomes = serializers.CharField(allow_null=True)


class MarkedRunSerializer(serializers.Serializer[Any]):
    """One run of a mark."""

    id = serializers.IntegerField()
    flow_id = serializers.CharField()
    run_id = serializers.CharField(source="run_key")
    state = serializers.CharField()
    becomes = serializers.CharField()
    effect = serializers.CharField()


class RefusedRunSerializer(serializers.Serializer[Any]):
    """One of several runs in which nothing is done, and why."""

    id = serializers.IntegerField()
    why = serializers.CharField()


class MarkPlanSerializer(serializers.Serializer[Any]):
    """What marking does."""

    state = serializers.CharField()
    runs = MarkedRunSerializer(many=True)
    refused = RefusedRunSerializer(many=True)
    included = MarkedSerializer(many=True)
    excluded = MarkedSerializer(many=True)
    callbacks = serializers.BooleanField()
    dry_run = serializers.BooleanField()


class TerminationsSerializer(serializers.Serializer[Any]):
    """What terminating task instances of any runs does, by run."""

    runs = TerminationPlanSerializer(source="plans", many=True)
    refused = RefusedRunSerializer(many=True)
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
