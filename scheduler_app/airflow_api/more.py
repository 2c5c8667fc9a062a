"""Small lists that scripts and habits ask for: counts of runs, tags, faulty files, versions, links."""

from __future__ import annotations

import asyncio
import json
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid5

from asgiref.sync import sync_to_async
from django.db.models import Q
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import reverse
from rest_framework.response import Response

from scheduler_app.airflow_api import parameters, shapes
from scheduler_app.airflow_api.dag_runs import run_of
from scheduler_app.airflow_api.dags import dag_of
from scheduler_app.airflow_api.logs import NDJSON
from scheduler_app.airflow_api.task_instances import instance_of, tries_of
from scheduler_app.airflow_api.views import AirflowView, refusal
from scheduler_app.queries import attempts as attempts_read
from scheduler_app.queries import (
    by_offset,
    flow_files,
    flow_versions,
    flows,
    runs,
    task_instances,
    version_diffs,
)
from scheduler_app.rules.errors import InvalidInput, NotFound
from scheduler_app.rules.states import RUN_TERMINAL, RunState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rest_framework.request import Request

    from scheduler_app.queries.flow_files import FaultyFile
    from scheduler_app.queries.flow_versions import FlowVersionRow
    from scheduler_app.queries.scope import Scope

FLOWS_MAX: Final = 200  # of one answer of counts
TEXT: Final = "text/plain"
WAIT_S_MAX: Final = 24 * 3600.0
INTERVAL_S_MAX: Final = 3600.0
_VERSIONS: Final = UUID("6f5f7c9e-54a8-4b7e-9a8e-3f0b7d2c1a55")  # names the ids of versions


class DagStats(AirflowView):
    """How many runs of each flow are in each state."""

    def get(self, request: Request) -> Response:
        """Of the flows that are named; of the first ones, else."""
        named = parameters.texts(request, "dag_ids")
        found = by_offset.page(
            flows.NOUN,
            self.scope,
            where=Q(flow_id__in=named) if named else Q(),
            order=(("flow_id", False),),
            limit=FLOWS_MAX,
        )
        counted = runs.state_counts(self.scope, [row.flow_id for row in found.rows])
        dags = [
            {
                "dag_id": row.flow_id,
                "dag_display_name": row.flow_id,
                "stats": [
                    {"state": state.value, "count": counted.get(row.flow_id, {}).get(state, 0)}
                    for state in RunState
                ],
            }
            for row in found.rows
        ]
        return Response({"dags": dags, "total_entries": found.total})


class DagTags(AirflowView):
    """The tags that flows have."""

    def get(self, request: Request) -> Response:
        """By name, page by page."""
        window = parameters.window(request, {"name": "name"}, default="name")
        found = by_offset.page(
            flows.NOUN, self.scope, where=Q(), order=(), limit=by_offset.COUNT_MAX
        )
        tags = sorted({tag for row in found.rows for tag in row.tags}, reverse=window.order[0][1])
        part = tags[window.offset : window.offset + window.limit]
        return Response({"tags": part, "total_entries": len(tags)})


class ImportErrors(AirflowView):
    """Files of the flow folders that are faulty."""

    def get(self, request: Request) -> Response:
        """By path, page by page."""
        window = parameters.window(request, {"filename": "path", "id": "path"}, default="filename")
        told = [_fault(number, file) for number, file in enumerate(_faulty(self.scope), 1)]
        part = told[window.offset : window.offset + window.limit]
        return Response({"import_errors": part, "total_entries": len(told)})


class ImportError_(AirflowView):  # noqa: N801 - the name of a builtin without it
    """One faulty file, by its place among them."""

    def get(self, request: Request, number: int) -> Response:
        """Its faults."""
        del request
        files = _faulty(self.scope)
        if not 1 <= number <= len(files):
            message = f"The ImportError with import_error_id: `{number}` was not found"
            raise NotFound(message)
        return Response(_fault(number, files[number - 1]))


class DagVersions(AirflowView):
    """The versions of a flow; or one."""

    def get(self, request: Request, dag_id: str, number: int | None = None) -> Response:
        """Newest last, page by page."""
        dag_of(self.scope, dag_id)
        if number is not None:
            return Response(_version(flow_versions.by_number(self.scope, dag_id, number)))
        orders = {"id": "number", "version_number": "number", "created_at": "created_at"}
        window = parameters.window(request, orders, default="id")
        page = by_offset.page(
            flow_versions.NOUN,
            self.scope,
            where=Q(flow_id=dag_id),
            order=window.order,
            limit=window.limit,
            offset=window.offset,
        )
        told = [_version(row) for row in page.rows]
        return Response({"dag_versions": told, "total_entries": page.total})


class DagSources(AirflowView):
    """The code of a flow's file, as one version has it."""

    def get(self, request: Request, dag_id: str) -> Response | HttpResponse:
        """JSON, or the bare text for who asks for that."""
        accepted = request.headers.get("Accept", "*/*")
        wants_json = any(kind in accepted for kind in ("*/*", "application/json", "application/*"))
        wants_text = TEXT in accepted and "application/json" not in accepted
        if not wants_json and not wants_text:
            message = "Only application/json or text/plain is supported"
            return refusal(HTTPStatus.NOT_ACCEPTABLE, message)
        row = dag_of(self.scope, dag_id)
        given = request.query_params.get("version_number")
        if given is not None:
            number = parameters.read(["query", "version_number"], int, given, "int_parsing")
            version = flow_versions.by_number(self.scope, dag_id, number)
        elif row.version_id is not None:
            version = flow_versions.one(self.scope, row.version_id)
        else:
            message = f"Flow {dag_id} has no version yet: its file was never free of faults."
            raise NotFound(message)
        source = version_diffs.source_of(version)
        content = version_diffs.text_of(source.files.get(source.main_path, b"")) or ""
        if wants_text:
            return HttpResponse(content, content_type=f"{TEXT}; charset=utf-8")
        return Response(
            {
                "content": content,
                "dag_id": dag_id,
                "version_number": version.number,
                "dag_display_name": dag_id,
            }
        )


class Links(AirflowView):
    """Links of a task instance that its operator gives: there are none."""

    def get(
        self,
        request: Request,
        dag_id: str,
        run_id: str,
        task_id: str,
        map_index: int | None = None,
    ) -> Response:
        """An empty object."""
        instance_of(self.scope, request, dag_id, run_id, task_id, map_index)
        return Response({"extra_links": {}, "total_entries": 0})


class ExternalLogUrl(AirflowView):
    """Where the log of a try is read by a person."""

    def get(
        self,
        request: Request,
        dag_id: str,
        run_id: str,
        task_id: str,
        number: int,
        map_index: int | None = None,
    ) -> Response:
        """The page of its attempt."""
        row = instance_of(self.scope, request, dag_id, run_id, task_id, map_index)
        found = tries_of(self.scope, row)
        if number not in found:
            message = f"TaskInstance not found: task {task_id} has no try {number}"
            raise NotFound(message)
        page = reverse("dashboard:attempt_detail", args=[found[number].id])
        return Response({"url": request.build_absolute_uri(page)})


class Wait(AirflowView):
    """A run, watched until it ends."""

    def get(self, request: Request, dag_id: str, run_id: str) -> StreamingHttpResponse:
        """A line for each look, the last with the results that were asked for."""
        row = run_of(self.scope, dag_id, run_id)
        given = request.query_params.get("interval")
        if given is None:
            raise InvalidInput("Give interval: seconds between two looks.")
        interval_s = parameters.read(["query", "interval"], float, given, "float_parsing")
        if not 0 < interval_s <= INTERVAL_S_MAX:
            raise InvalidInput(f"interval: more than 0 and at most {INTERVAL_S_MAX:g} seconds.")
        wanted = parameters.texts(request, "result")
        return StreamingHttpResponse(
            _watched(self.scope, row.id, interval_s, wanted), content_type=NDJSON
        )


async def _watched(
    scope: Scope, run: int, interval_s: float, wanted: tuple[str, ...]
) -> AsyncIterator[bytes]:
    ends_at = time.monotonic() + WAIT_S_MAX
    while True:
        row = await sync_to_async(runs.one)(scope, run)
        told: dict[str, Any] = {"state": row.state_beneath}
        is_over = row.state_beneath in RUN_TERMINAL
        if is_over and wanted:
            told["results"] = await sync_to_async(_results)(scope, run, wanted)
        yield f"{json.dumps(told, ensure_ascii=False)}\n".encode()
        if is_over or time.monotonic() >= ends_at:
            return
        await asyncio.sleep(interval_s)


def _results(scope: Scope, run: int, wanted: tuple[str, ...]) -> dict[str, Any]:
    found = by_offset.page(
        task_instances.NOUN,
        scope,
        where=Q(run_id=run, task_id__in=wanted, map_index=-1, attempt_id__isnull=False),
        order=(),
        limit=len(wanted),
    )
    return {
        row.task_id: attempts_read.one(scope, row.attempt_id).result
        for row in found.rows
        if row.attempt_id is not None
    }


def _faulty(scope: Scope) -> tuple[FaultyFile, ...]:
    return flow_files.faulty(scope)


def _fault(number: int, file: FaultyFile) -> dict[str, Any]:
    lines = [
        f"{fault.file}:{fault.line or '?'}: {fault.message} {fault.remedy}".strip()
        for fault in file.faults
    ]
    return {
        "import_error_id": number,
        "timestamp": shapes.instant(file.loaded_at) or "1970-01-01T00:00:00Z",
        "filename": file.path,
        "bundle_name": file.folder,
        "stack_trace": "\n".join(lines),
    }


def _version(row: FlowVersionRow) -> dict[str, Any]:
    return {
        "id": str(uuid5(_VERSIONS, str(row.id))),
        "version_number": row.number,
        "dag_id": row.flow_id,
        "dag_display_name": row.flow_id,
        "bundle_name": None,
        "bundle_version": row.bundle,
        "created_at": shapes.instant(row.created_at),
        "bundle_url": None,
        "daylight": {"id": row.id, "digest": row.digest},
    }
