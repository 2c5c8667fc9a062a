"""Flows, their versions, and pausing them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from scheduler_app.api import bodies
from scheduler_app.api.lines import line
from scheduler_app.api.reading import ApiView, NounList, StandingSerializer
from scheduler_app.operations.pause_flow import set_paused
from scheduler_app.queries import flow_versions, flows, version_diffs
from scheduler_app.queries.filters import FlowFilter, FlowVersionFilter
from scheduler_app.rules.errors import InvalidInput

if TYPE_CHECKING:
    from rest_framework.request import Request


class FlowSerializer(StandingSerializer):
    """One flow."""

    flow_id = serializers.CharField()
    state = serializers.CharField()
    is_paused = serializers.BooleanField()
    description = serializers.CharField()
    owner = serializers.CharField()
    tags = serializers.ListField(child=serializers.CharField())
    shard = serializers.IntegerField()
    version = serializers.IntegerField(allow_null=True)
    version_id = serializers.IntegerField(allow_null=True)
    version_created_at = serializers.DateTimeField(allow_null=True)
    schedule = serializers.CharField(allow_null=True)
    timetable = serializers.JSONField(allow_null=True)
    start_date = serializers.CharField(allow_null=True)
    end_date = serializers.CharField(allow_null=True)
    timezone = serializers.CharField(allow_null=True)
    catchup = serializers.BooleanField(allow_null=True)
    max_active_runs = serializers.IntegerField(allow_null=True)
    max_active_tasks = serializers.IntegerField(allow_null=True)
    params = serializers.JSONField(allow_null=True)
    param_schemas = serializers.JSONField(allow_null=True)
    param_order = serializers.JSONField(allow_null=True)  # names, as the file declares them
    folder = serializers.CharField()
    path = serializers.CharField()
    next_interval_start = serializers.DateTimeField(allow_null=True)
    next_interval_end = serializers.DateTimeField(allow_null=True)
    last_interval_start = serializers.DateTimeField(allow_null=True)
    last_interval_end = serializers.DateTimeField(allow_null=True)
    in_line_from = serializers.DateTimeField(allow_null=True)
    frozen_at = serializers.DateTimeField(allow_null=True)
    removed_at = serializers.DateTimeField(allow_null=True)
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class FlowDetailSerializer(FlowSerializer):
    """One flow, with its schedule in words and when that fires next."""

    schedule_in_words = serializers.CharField()
    # The next five, whether the flow is paused or not.
    next_fire_times = serializers.ListField(child=serializers.DateTimeField())

    def to_representation(self, instance: Any) -> dict[str, Any]:
        """The row, and what its schedule means now."""
        at = serializers.DateTimeField()
        return {
            **line(FlowSerializer, instance),
            "schedule_in_words": flows.schedule_in_words(instance),
            "next_fire_times": [
                at.to_representation(one) for one in flows.next_times(instance, timezone.now())
            ],
        }


class FlowVersionSerializer(serializers.Serializer[flow_versions.FlowVersionRow]):
    """One immutable picture of a flow."""

    id = serializers.IntegerField()
    flow_id = serializers.CharField()
    number = serializers.IntegerField()
    digest = serializers.CharField()
    bundle = serializers.CharField()
    created_at = serializers.DateTimeField()


class FlowVersionDetailSerializer(FlowVersionSerializer):
    """One version with its graph."""

    definition = serializers.JSONField()


class SourceFileSerializer(serializers.Serializer[dict[str, Any]]):
    """One file of the source of a version; null for a text that is none."""

    path = serializers.CharField()
    size = serializers.IntegerField()
    text = serializers.CharField(allow_null=True)


class FlowVersionSourceSerializer(serializers.Serializer[dict[str, Any]]):
    """The code of one version: the flow file, and what it imports from its folder."""

    number = serializers.IntegerField()
    main_path = serializers.CharField()
    is_damaged = serializers.BooleanField()
    files = SourceFileSerializer(many=True)


class ChangeSerializer(serializers.Serializer[Any]):
    """One option with its value in both versions."""

    name = serializers.CharField()
    old = serializers.JSONField(allow_null=True)
    new = serializers.JSONField(allow_null=True)


class ChangedSerializer(serializers.Serializer[Any]):
    """A task or a group whose options differ."""

    name = serializers.CharField()
    changes = ChangeSerializer(many=True)


class PartsSerializer(serializers.Serializer[Any]):
    """What came, went and changed, by id."""

    added = serializers.ListField(child=serializers.CharField())
    removed = serializers.ListField(child=serializers.CharField())
    changed = ChangedSerializer(many=True)


class FileDiffSerializer(serializers.Serializer[Any]):
    """One file that differs, as the lines of a unified diff; ``note`` says why some are missing."""

    path = serializers.CharField()
    state = serializers.CharField()
    lines = serializers.ListField(child=serializers.CharField(allow_blank=True))
    note = serializers.CharField()
    added_count = serializers.IntegerField()
    removed_count = serializers.IntegerField()


class FlowVersionDiffSerializer(serializers.Serializer[version_diffs.Comparison]):
    """What differs between two versions of a flow."""

    old = FlowVersionSerializer()
    new = FlowVersionSerializer()
    differ = serializers.BooleanField()
    summary = serializers.CharField(source="diff.told")
    tasks = PartsSerializer(source="diff.tasks")
    groups = PartsSerializer(source="diff.groups")
    edges_added = serializers.JSONField(source="diff.edges_added")
    edges_removed = serializers.JSONField(source="diff.edges_removed")
    schedule = ChangeSerializer(source="diff.schedule", many=True)
    params = ChangeSerializer(source="diff.params", many=True)
    options = ChangeSerializer(source="diff.options", many=True)
    files = FileDiffSerializer(source="diff.files", many=True)
    is_source_damaged = serializers.BooleanField()


class PauseSerializer(serializers.Serializer[dict[str, Any]]):
    """Why."""

    reason = serializers.CharField(
        required=False, allow_blank=True, default="", max_length=1000, trim_whitespace=False
    )


class FlowList(NounList):
    """Flows, page by page."""

    noun = flows.NOUN
    asked = FlowFilter
    serializer = FlowSerializer


class FlowDetail(ApiView):
    """One flow, current or filtered."""

    @extend_schema(responses=FlowDetailSerializer)
    def get(self, request: Request, flow_id: str) -> Response:
        """All its fields."""
        del request
        row = flows.one(self.scope, flow_id)
        return Response(line(FlowDetailSerializer, row))


class FlowVersionList(NounList):
    """The versions of one flow, page by page."""

    noun = flow_versions.NOUN
    asked = FlowVersionFilter
    serializer = FlowVersionSerializer

    def get(self, request: Request, **path: str) -> Response:
        """Versions of the flow."""
        flows.one(self.scope, path["flow_id"])
        return super().get(request, **path)


class FlowVersionDetail(ApiView):
    """One version of a flow by its number."""

    @extend_schema(responses=FlowVersionDetailSerializer)
    def get(self, request: Request, flow_id: str, number: int) -> Response:
        """All its fields, with the definition."""
        del request
        row = flow_versions.by_number(self.scope, flow_id, number)
        return Response(line(FlowVersionDetailSerializer, row))


class FlowVersionSource(ApiView):
    """The code of one version."""

    @extend_schema(responses=FlowVersionSourceSerializer)
    def get(self, request: Request, flow_id: str, number: int) -> Response:
        """Its files, the flow file first."""
        del request
        row = flow_versions.by_number(self.scope, flow_id, number)
        source = version_diffs.source_of(row)
        body = {
            "number": row.number,
            "main_path": source.main_path,
            "is_damaged": source.is_damaged,
            "files": [
                {"path": path, "size": len(content), "text": version_diffs.text_of(content)}
                for path, content in source.in_order()
            ],
        }
        return Response(line(FlowVersionSourceSerializer, body))


class FlowVersionDiff(ApiView):
    """Two versions of a flow compared."""

    @extend_schema(
        responses=FlowVersionDiffSerializer,
        parameters=[
            OpenApiParameter("old", str, description="number or digest; else the one before new"),
            OpenApiParameter("new", str, description="number or digest; else the newest"),
            OpenApiParameter("run_id", str, description="in place of old: the version of the run"),
        ],
    )
    def get(self, request: Request, flow_id: str) -> Response:
        """What was added, removed and changed, by kind."""
        given = {name: request.query_params.get(name, "") for name in ("old", "new", "run_id")}
        if unknown := sorted(request.query_params.keys() - given.keys()):
            message = f"{unknown[0]}: no such parameter. There are old, new and run_id."
            raise InvalidInput(message, parameter=unknown[0])
        found = version_diffs.of_flow(self.scope, flow_id, **given)
        return Response(line(FlowVersionDiffSerializer, found))


class FlowPause(ApiView):
    """Whether the schedule of a flow makes new runs; ``is_paused`` is said by the address."""

    is_paused = True

    @extend_schema(request=PauseSerializer, responses=FlowSerializer)
    def post(self, request: Request, flow_id: str) -> Response:
        """The flow is as asked; asking again changes nothing."""
        flows.one(self.scope, flow_id)
        body = bodies.checked(PauseSerializer, request)
        set_paused(
            flow_id=flow_id,
            is_paused=self.is_paused,
            actor=request.user.get_username(),
            reason=body["reason"],
        )
        return Response(line(FlowSerializer, flows.one(self.scope, flow_id)))
