"""Clearing over the API: what it is asked with, and the plan that it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from scheduler_app.api import bodies, matching
from scheduler_app.api.acts import ActRequestSerializer
from scheduler_app.api.lines import line
from scheduler_app.api.reading import ApiView
from scheduler_app.api.tasks_named import TasksNamedSerializer
from scheduler_app.operations.clear import NOTE_CHARACTERS_MAX, clear_run, clear_task_instances
from scheduler_app.operations.clear_batch import Batch, batch, carry_out_batch, go_on, plan_batch
from scheduler_app.operations.reaching import of_run
from scheduler_app.operations.undo_clear import undo_clear
from scheduler_app.queries import rights, runs, task_instances
from scheduler_app.rules.clear import Options
from scheduler_app.rules.errors import InvalidInput

if TYPE_CHECKING:
    from uuid import UUID

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
    run_on_latest_version = serializers.BooleanField(required=False, allow_null=True, default=None)
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


class RunClearRequestSerializer(TasksNamedSerializer, ClearRequestSerializer):
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
    can_be_undone = serializers.BooleanField()
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
        if body["tasks"] or body["group"] is not None:
            more = of_run(run, tasks=body["tasks"] or (), group=body["group"])
            named = [*(named or ()), *more]
        actor = request.user.get_username()
        if named is None:
            _refuse_relatives(options)
            return _answer(clear_run(run_id=run, actor=actor, options=options, **asked))
        task_instances.check_of_run(self.scope, row.id, named)
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
    return Response(line(ClearPlanSerializer, plan))


# -- several runs --------------------------------------------------------------------------------

CARRIED_S: Final = (
    20.0  # how long one request carries out plans; the rest is gone on with by another
)


class RunsClearRequestSerializer(ClearRequestSerializer):
    """Which runs: those that are named, or all that the address filters."""

    runs = serializers.ListField(
        child=serializers.IntegerField(), required=False, allow_null=True, default=None
    )


class TaskInstancesClearRequestSerializer(ClearRequestSerializer):
    """Which task instances, of any runs: those that are named, or all that the address filters."""

    task_instances = serializers.ListField(
        child=serializers.IntegerField(), required=False, allow_null=True, default=None
    )
    include_upstream = serializers.BooleanField(required=False, default=False)
    include_downstream = serializers.BooleanField(required=False, default=False)
    include_past = serializers.BooleanField(required=False, default=False)
    include_future = serializers.BooleanField(required=False, default=False)


class PartSerializer(serializers.Serializer[Any]):
    """One run of a batch: what is done in it, or why nothing is."""

    run = serializers.IntegerField(source="run_id")
    run_id = serializers.CharField(source="run_key")
    flow_id = serializers.CharField()
    plan_id = serializers.UUIDField(allow_null=True)
    state = serializers.CharField()
    included = serializers.IntegerField()
    excluded = serializers.IntegerField()
    worst_case_executions = serializers.IntegerField()
    new_run_attempt = serializers.IntegerField(allow_null=True)
    refusal = serializers.CharField(allow_null=True)
    can_be_undone = serializers.BooleanField()


class BatchSerializer(serializers.Serializer[Any]):
    """A clear of several runs, and how far it has come. The counts are of task instances."""

    plan_id = serializers.UUIDField(source="batch_id")
    hash = serializers.CharField()
    state = serializers.CharField()
    options = OptionsSerializer()
    actor = serializers.CharField()
    reason = serializers.CharField()
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()
    begun_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    included = serializers.IntegerField()
    worst_case_executions = serializers.IntegerField()
    runs = PartSerializer(source="parts", many=True)


class UndoneSerializer(serializers.Serializer[Any]):
    """What undoing a clear does."""

    plan_id = serializers.UUIDField()
    run = serializers.IntegerField(source="run_id")
    task_instances = serializers.IntegerField()
    dry_run = serializers.BooleanField()


class RunsClear(ApiView):
    """Clearing several runs, each as a whole."""

    @extend_schema(
        operation_id="runs_clear_several",
        request=RunsClearRequestSerializer,
        responses=BatchSerializer,
    )
    def post(self, request: Request) -> Response:
        """A batch of plans, one a run; with ``dry_run`` false and its ``plan_id`` it is carried out."""
        body = bodies.checked(RunsClearRequestSerializer, request)
        ids: list[int] = []
        if body["runs"] is not None or body["plan_id"] is None:
            ids = matching.runs_of(request, self.scope, body["runs"])
        return _batched(request, body, run_ids=ids)


class TaskInstancesClear(ApiView):
    """Clearing task instances of several runs."""

    @extend_schema(
        operation_id="task_instances_clear_several",
        request=TaskInstancesClearRequestSerializer,
        responses=BatchSerializer,
    )
    def post(self, request: Request) -> Response:
        """A batch of plans, one a run; with ``dry_run`` false and its ``plan_id`` it is carried out."""
        body = bodies.checked(TaskInstancesClearRequestSerializer, request)
        ids: list[int] = []
        if body["task_instances"] is not None or body["plan_id"] is None:
            ids = matching.task_instances_of(request, self.scope, body["task_instances"])
        return _batched(
            request,
            body,
            ti_ids=ids,
            past=body["include_past"],
            future=body["include_future"],
        )


class ClearBatchDetail(ApiView):
    """One clear of several runs."""

    @extend_schema(responses=BatchSerializer)
    def get(self, request: Request, batch_id: UUID) -> Response:
        """How far it has come."""
        del request
        return Response(line(BatchSerializer, batch(batch_id)))


class ClearBatchGoOn(ApiView):
    """Going on with a clear of several runs that was begun."""

    @extend_schema(request=None, responses=BatchSerializer)
    def post(self, request: Request, batch_id: UUID) -> Response:
        """The next of its plans are carried out, for some seconds."""
        actor = request.user.get_username()
        return Response(line(BatchSerializer, go_on(batch_id, actor=actor, within_s=CARRIED_S)))


class ClearUndo(ApiView):
    """Undoing a clear of which nothing has started."""

    @extend_schema(request=ActRequestSerializer, responses=UndoneSerializer)
    def post(self, request: Request, plan_id: UUID) -> Response:
        """All is as it was before; ``dry_run`` only says so."""
        body = bodies.checked(ActRequestSerializer, request)
        done = undo_clear(plan_id=plan_id, actor=request.user.get_username(), **body)
        return Response(line(UndoneSerializer, done))


def _batched(request: Request, body: dict[str, Any], **named: Any) -> Response:
    actor = request.user.get_username()
    planned: Batch | None = None
    plan_id = body["plan_id"]
    if plan_id is None:
        options = Options(**{key: body[key] for key in Options.__dataclass_fields__ if key in body})
        asked = {"address": request.get_full_path()}
        automated = body["automated"] or rights.is_service(request.user)
        planned = plan_batch(
            actor=actor, options=options, asked=asked, automated=automated, **named
        )
        plan_id = planned.batch_id
    elif body["dry_run"]:
        raise InvalidInput(
            "A plan is carried out with dry_run false; leave plan_id out to make a new one.",
            field="plan_id",
        )
    if body["dry_run"]:
        return Response(line(BatchSerializer, planned))
    done = carry_out_batch(
        plan_id,
        actor=actor,
        reason=body["reason"],
        note=body["note"],
        within_s=CARRIED_S,
    )
    return Response(line(BatchSerializer, done))
