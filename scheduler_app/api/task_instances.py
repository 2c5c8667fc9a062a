"""Task instances."""

from __future__ import annotations

from datetime import timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from scheduler_app.api import bodies, matching
from scheduler_app.api.acts import (
    ActRequestSerializer,
    TaskInstancesActRequestSerializer,
    TerminationPlanSerializer,
    TerminationsSerializer,
)
from scheduler_app.api.lines import line
from scheduler_app.api.pools import HoldersSerializer, window
from scheduler_app.api.reading import ApiView, NounList, StandingSerializer
from scheduler_app.api.saving import (
    ArtifactSerializer,
    CheckpointSaveSerializer,
    CheckpointSerializer,
    ProgressSerializer,
)
from scheduler_app.operations.send_event import send_event
from scheduler_app.operations.set_next_retry import AWAY_MAX, set_next_retry
from scheduler_app.operations.terminate import (
    terminate_task_instance,
    terminate_task_instances,
)
from scheduler_app.queries import artifacts, saving, slots, task_instances, why
from scheduler_app.queries.filters import TaskInstanceFilter

if TYPE_CHECKING:
    from rest_framework.request import Request


class TaskInstanceSerializer(StandingSerializer):
    """One task instance."""

    id = serializers.IntegerField()
    flow_id = serializers.CharField(allow_null=True)
    run_id = serializers.CharField(allow_null=True)
    run = serializers.IntegerField()
    task_id = serializers.CharField()
    map_index = serializers.IntegerField()
    map_label = serializers.CharField(allow_null=True)
    shard = serializers.IntegerField()
    state = serializers.CharField()
    state_beneath = serializers.CharField()
    try_number = serializers.IntegerField()
    max_tries = serializers.IntegerField()
    budget_start = serializers.IntegerField()
    resume_index = serializers.IntegerField()
    dispatch_no = serializers.IntegerField()
    infra_losses = serializers.IntegerField()
    attempt_id = serializers.UUIDField(allow_null=True)
    held_by = serializers.IntegerField(allow_null=True)
    pool = serializers.CharField()
    pool_slots = serializers.IntegerField()
    queue = serializers.CharField()
    priority = serializers.IntegerField()
    wait = serializers.JSONField(allow_null=True)
    ready_at = serializers.DateTimeField(allow_null=True)
    queued_at = serializers.DateTimeField(allow_null=True)
    started_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    next_retry_at = serializers.DateTimeField(allow_null=True)
    next_retry_why = serializers.JSONField(allow_null=True)
    next_method = serializers.CharField(allow_null=True)
    stop_requested_at = serializers.DateTimeField(allow_null=True)
    stop_reason = serializers.CharField(allow_null=True)
    mark = serializers.JSONField(allow_null=True)
    progress = ProgressSerializer(allow_null=True)


class WhyHolderSerializer(serializers.Serializer[Any]):
    """A task instance that holds what this one waits for."""

    name = serializers.CharField(allow_null=True)
    ti = serializers.IntegerField(allow_null=True)
    run = serializers.IntegerField(allow_null=True)
    slots = serializers.IntegerField()
    state = serializers.CharField()
    since = serializers.DateTimeField(allow_null=True)


class WhySerializer(serializers.Serializer[Any]):
    """What happened to it or what it waits for, in one sentence, and by which rule.

    Where it waits for room: since when, who holds it (longest first, some of ``holders_total``), and
    how many others come first.
    """

    rule = serializers.CharField()
    sentence = serializers.CharField()
    since = serializers.DateTimeField(allow_null=True)
    holders = WhyHolderSerializer(many=True)
    holders_total = serializers.IntegerField()
    before = serializers.IntegerField()


class TaskInstanceDetailSerializer(TaskInstanceSerializer):
    """One task instance with the sentence about it, and what its tries left for the next."""

    why = WhySerializer()
    next_retry_reason = serializers.CharField(allow_null=True)
    checkpoints = CheckpointSerializer(many=True)
    artifacts = ArtifactSerializer(many=True)


class TaskInstanceList(NounList):
    """Task instances, page by page."""

    noun = task_instances.NOUN
    asked = TaskInstanceFilter
    serializer = TaskInstanceSerializer


class TaskInstanceDetail(ApiView):
    """One task instance, current or filtered."""

    @extend_schema(responses=TaskInstanceDetailSerializer)
    def get(self, request: Request, ti: int) -> Response:
        """All its fields, and why it is as it is."""
        del request
        row = task_instances.one(self.scope, ti)
        told = line(WhySerializer, why.explain(self.scope, row))
        kept = [line(CheckpointSerializer, one) for one in saving.of_task(self.scope, row)]
        shown = [line(ArtifactSerializer, one) for one in artifacts.of_task(row)]
        more = {
            "why": told,
            "next_retry_reason": row.next_retry_reason,
            "checkpoints": kept,
            "artifacts": shown,
        }
        return Response({**line(TaskInstanceSerializer, row), **more})


class TaskInstanceCheckpoint(ApiView):
    """The saves of one checkpoint of a task instance."""

    @extend_schema(responses=CheckpointSaveSerializer(many=True))
    def get(self, request: Request, ti: int, checkpoint: int) -> Response:
        """The newest saves first, each with the attempt that wrote it."""
        del request
        row = task_instances.one(self.scope, ti)
        found = saving.history(self.scope, row, checkpoint)
        return Response([line(CheckpointSaveSerializer, one) for one in found])


class TaskInstanceHolders(ApiView):
    """Who holds what a task instance waits for."""

    @extend_schema(responses=HoldersSerializer)
    def get(self, request: Request, ti: int) -> Response:
        """Longest first, ``limit`` from ``offset`` on; nobody where it does not wait for room."""
        row = task_instances.one(self.scope, ti)
        wanted = why.slots_waited_for(row)
        asked = window(request)
        found = (
            slots.Places(rows=(), total=0, offset=0)
            if wanted is None
            else slots.holders(self.scope, wanted, **asked)
        )
        return Response(line(HoldersSerializer, found))


class ExternalEventRequestSerializer(serializers.Serializer[dict[str, Any]]):
    """What a task that waits for an event may be told."""

    key = serializers.CharField(required=False, default="event", trim_whitespace=False)
    payload = serializers.JSONField(
        required=False, allow_null=True, default=None, validators=[bodies.check_storable]
    )


class ExternalEventSerializer(serializers.Serializer[Any]):
    """What became of the event."""

    id = serializers.IntegerField()
    key = serializers.CharField()
    trigger_id = serializers.IntegerField(allow_null=True)
    state = serializers.CharField()


class TaskInstanceEvent(ApiView):
    """Events from outside for one task instance."""

    @extend_schema(
        request=ExternalEventRequestSerializer,
        responses={HTTPStatus.CREATED: ExternalEventSerializer},
    )
    def post(self, request: Request, ti: int) -> Response:
        """The event is kept; the task resumes with it, now or when it comes to wait for its key."""
        task_instances.one(self.scope, ti)
        body = bodies.checked(ExternalEventRequestSerializer, request)
        sent = send_event(ti_id=ti, actor=request.user.get_username(), **body)
        return Response(line(ExternalEventSerializer, sent), status=HTTPStatus.CREATED)


class TaskInstanceTerminate(ApiView):
    """Ending one task instance."""

    @extend_schema(request=ActRequestSerializer, responses=TerminationPlanSerializer)
    def post(self, request: Request, ti: int) -> Response:
        """It fails without a retry, at once or when it has stopped; ``dry_run`` only says so."""
        task_instances.one(self.scope, ti)
        body = bodies.checked(ActRequestSerializer, request)
        plan = terminate_task_instance(ti_id=ti, actor=request.user.get_username(), **body)
        return Response(line(TerminationPlanSerializer, plan))


class TaskInstancesTerminate(ApiView):
    """Ending task instances of any runs."""

    @extend_schema(
        operation_id="task_instances_terminate_several",
        request=TaskInstancesActRequestSerializer,
        responses=TerminationsSerializer,
    )
    def post(self, request: Request) -> Response:
        """They fail without a retry, at once or when they have stopped; ``dry_run`` only says so."""
        body = bodies.checked(TaskInstancesActRequestSerializer, request)
        ids = matching.task_instances_of(request, self.scope, body.pop("task_instances"))
        actor = request.user.get_username()
        done = terminate_task_instances(ti_ids=ids, actor=actor, **body)
        return Response(line(TerminationsSerializer, done))


class RetryRequestSerializer(ActRequestSerializer):
    """Why, and when: at a time or so many seconds from now; without either, now."""

    at = serializers.DateTimeField(required=False, allow_null=True, default=None)
    after_s = serializers.FloatField(
        required=False,
        allow_null=True,
        default=None,
        min_value=0,
        max_value=AWAY_MAX.total_seconds(),
    )


class NextRetrySerializer(serializers.Serializer[Any]):
    """When the task begins again, and when it would have."""

    id = serializers.IntegerField()
    task_id = serializers.CharField()
    map_index = serializers.IntegerField()
    state = serializers.CharField()
    was = serializers.DateTimeField(allow_null=True)
    next_retry_at = serializers.DateTimeField(allow_null=True)
    effect = serializers.CharField()
    dry_run = serializers.BooleanField()


class TaskInstanceRetry(ApiView):
    """The next try of a task instance that waits for one."""

    @extend_schema(request=RetryRequestSerializer, responses=NextRetrySerializer)
    def post(self, request: Request, ti: int) -> Response:
        """It begins at that time, or now; ``dry_run`` only says so."""
        task_instances.one(self.scope, ti)
        body = bodies.checked(RetryRequestSerializer, request)
        after_s = body.pop("after_s")
        moved = set_next_retry(
            ti_id=ti,
            actor=request.user.get_username(),
            after=None if after_s is None else timedelta(seconds=after_s),
            **body,
        )
        return Response(line(NextRetrySerializer, moved))
