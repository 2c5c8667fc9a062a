"""Clearing over the API: what it is asked with, and the plan that it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from scheduler_app.api import bodies
from scheduler_app.api.reading import ApiView
from scheduler_app.operations.clear import NOTE_CHARACTERS_MAX, clear_run, clear_task_instances
from scheduler_app.queries import rights, runs, task_instances
from scheduler_app.rules.clear import Options
from scheduler_app.rules.errors import InvalidInput

if TYPE_CHECKING:
    from rest_framework.request import Request

RELATIVES: Final = ("include_upstream", "include_downstream")


class ClearRequestSerializer(serializers.Serializer[dict[str, Any]]):
    """What is cleared of a run, and how; a preview unless ``dry_run`` is false."""

    reason = serializers.CharField(
        required=False, allow_blank=True, default="", trim_whitespace=False
    )
    dry_run = serializers.BooleanField(required=False, default=True)
    plan_id = serializers.UUIDField(required=False, allow_null=True, default=None)
    only_failed = serializers.BooleanField(required=False, default=False)
    only_running = serializers.BooleanField(required=False, default=False)
    only_new = serializers.BooleanField(required=False, default=False)
    run_on_latest_version = serializers.BooleanField(required=False, default=False)
    keep_checkpoints = serializers.BooleanField(required=False, default=True)
    automated = serializers.BooleanField(required=False, default=False)
    note = serializers.CharField(
        required=False,
        allow_null=True,
        allow_blank=True,
        default=None,
        max_length=NOTE_CHARACTERS_MAX,
        trim_whitespace=False,
        validators=[bodies.check_storable],
    )


class RunClearRequestSerializer(ClearRequestSerializer):
    """The whole run, or the tasks of it that are named (then without a new run attempt)."""

    task_instances = serializers.ListField(
        child=serializers.IntegerField(),
        required=False,
        allow_null=True,
        default=None,
        allow_empty=False,
    )
    include_upstream = serializers.BooleanField(required=False, default=False)
    include_downstream = serializers.BooleanField(required=False, default=False)


class TaskInstanceClearRequestSerializer(ClearRequestSerializer):
    """One task instance, with its relatives where they are asked for."""

    include_upstream = serializers.BooleanField(required=False, default=False)
    include_downstream = serializers.BooleanField(required=False, default=False)


class ChoiceSerializer(serializers.Serializer[Any]):
    """One task instance, why it is in the plan or not, and what becomes of it."""

    id = serializers.IntegerField(allow_null=True)
    task_id = serializers.CharField()
    map_index = serializers.IntegerField()
    state = serializers.CharField()
    rule = serializers.CharField()
    effect = serializers.CharField()
    executions = serializers.IntegerField()


class OptionsSerializer(serializers.Serializer[Any]):
    """The switches that the plan was made with."""

    only_failed = serializers.BooleanField()
    only_running = serializers.BooleanField()
    only_new = serializers.BooleanField()
    include_upstream = serializers.BooleanField()
    include_downstream = serializers.BooleanField()
    run_on_latest_version = serializers.BooleanField()
    keep_checkpoints = serializers.BooleanField()


class ClearPlanSerializer(serializers.Serializer[Any]):
    """What a clear does, or would do."""

    plan_id = serializers.UUIDField()
    hash = serializers.CharField()
    expires_at = serializers.DateTimeField()
    run = serializers.IntegerField(source="run_id")
    version = serializers.IntegerField()
    new_run_attempt = serializers.IntegerField(allow_null=True)
    options = OptionsSerializer()
    included = ChoiceSerializer(many=True)
    excluded = ChoiceSerializer(many=True)
    worst_case_executions = serializers.IntegerField()
    dry_run = serializers.BooleanField()


class RunClear(ApiView):
    """Clearing a run, or task instances of it."""

    @extend_schema(request=RunClearRequestSerializer, responses=ClearPlanSerializer)
    def post(self, request: Request, run: int) -> Response:
        """A plan; with ``dry_run`` false it is carried out, what runs is stopped first."""
        row = runs.one(self.scope, run)
        body = bodies.checked(RunClearRequestSerializer, request)
        asked, options = _parted(body, request)
        named = body["task_instances"]
        actor = request.user.get_username()
        if named is None:
            _refuse_relatives(options)
            return _answer(clear_run(run_id=run, actor=actor, options=options, **asked))
        for ti in named:
            if task_instances.one(self.scope, ti).run != row.id:
                raise InvalidInput(
                    f"Task instance {ti} is not of this run.", field="task_instances"
                )
        return _answer(clear_task_instances(ti_ids=named, actor=actor, options=options, **asked))


class TaskInstanceClear(ApiView):
    """Clearing one task instance, with its relatives where they are asked for."""

    @extend_schema(request=TaskInstanceClearRequestSerializer, responses=ClearPlanSerializer)
    def post(self, request: Request, ti: int) -> Response:
        """A plan; with ``dry_run`` false it is carried out, what runs is stopped first."""
        task_instances.one(self.scope, ti)
        asked, options = _parted(
            bodies.checked(TaskInstanceClearRequestSerializer, request), request
        )
        actor = request.user.get_username()
        return _answer(clear_task_instances(ti_ids=[ti], actor=actor, options=options, **asked))


def _parted(body: dict[str, Any], request: Request) -> tuple[dict[str, Any], Options]:
    asked = {key: body[key] for key in ("reason", "dry_run", "plan_id", "note")}
    # What guards hold is not up to who asks: a service cannot say that it is a person.
    asked["automated"] = body["automated"] or rights.is_service(request.user)
    switches = {key: body[key] for key in Options.__dataclass_fields__ if key in body}
    return asked, Options(**switches)


def _refuse_relatives(options: Options) -> None:
    for name in RELATIVES:
        if getattr(options, name):
            raise InvalidInput(
                f"{name} needs task_instances to start from: the whole run is asked for.",
                field=name,
            )


def _answer(plan: object) -> Response:
    return Response(ClearPlanSerializer(plan).data)
