"""Evidence of one record, as a file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema

from scheduler_app.api.reading import ApiView
from scheduler_app.operations.note_export import note_evidence
from scheduler_app.queries import evidence
from scheduler_app.rules import errors

if TYPE_CHECKING:
    from rest_framework.request import Request


class EvidenceExport(ApiView):
    """Everything that proves what happened to one record, from one snapshot, with digests."""

    kind = evidence.Kind.RUN  # each address gives its own
    http_method_names = ("get", "options")  # no HEAD: it would be gathered for nobody

    @extend_schema(
        parameters=[
            OpenApiParameter("format", str, enum=list(evidence.FORMATS)),
            OpenApiParameter("logs", str, enum=["yes", "no"]),
        ],
        responses={200: OpenApiTypes.BINARY},
    )
    def get(self, request: Request, **path: Any) -> HttpResponse:
        """A ZIP with NDJSON, CSV and logs, or one JSON document, as ``format`` says."""
        name = request.query_params.get("format", "zip")
        with_logs = request.query_params.get("logs", "yes")
        if name not in evidence.FORMATS:
            raise errors.InvalidInput(
                f"format: '{name[:20]}' cannot be written. Give format=zip or format=json.",
                parameter="format",
            )
        if with_logs not in {"yes", "no"}:
            raise errors.InvalidInput("logs: give logs=yes or logs=no.", parameter="logs")
        (subject_id,) = path.values()
        found = evidence.gather(self.scope, self.kind, subject_id, with_logs=with_logs == "yes")
        content_type, write = evidence.FORMATS[name]
        actor = request.user.get_username()
        data = write(found, exported_by=actor)
        files = found.files(with_tables=name == "zip")
        digest = found.manifest(files, exported_by=actor)["content_sha256"]
        note_evidence(
            actor=actor, kind=self.kind.value, object_id=str(subject_id), content_sha256=digest
        )
        safe = re.sub(r"[^0-9A-Za-z-]", "", str(subject_id))
        file_name = f"evidence-{self.kind.value}-{safe}-{found.at:%Y%m%dT%H%M%SZ}.{name}"
        return HttpResponse(
            data,
            content_type=content_type,
            headers={
                "Content-Disposition": f'attachment; filename="{file_name}"',
                "X-Daylight-Sha256": digest,
            },
        )
