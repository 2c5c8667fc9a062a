"""What every list, detail and export of the API shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import urlencode

from django.http import StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import JSONParser
from rest_framework.permissions import IsAuthenticated
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.response import Response
from rest_framework.views import APIView

from scheduler_app.api import errors as problems
from scheduler_app.api.authentication import BearerAuthentication
from scheduler_app.api.lines import lines
from scheduler_app.api.schema import ListSchema, ReadingSchema
from scheduler_app.operations.note_export import note_export
from scheduler_app.queries import exports, lens
from scheduler_app.queries.scope import Scope, visible_flows
from scheduler_app.rules import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rest_framework.request import Request

    from scheduler_app.queries.list_filter import ListFilter

UNSAFE: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class QuickNegotiation(DefaultContentNegotiation):
    """As DRF's, which looks at each kind of answer for each kind that is accepted: most clients accept any, or JSON."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        """What answers, and as which kind. Raises ``NotAcceptable``."""
        known = list(renderers)
        if len(known) == 1 and format_suffix is None:
            kind = str(known[0].media_type)
            if request.META.get("HTTP_ACCEPT", "*/*") in ("*/*", kind):
                return known[0], kind
        found: tuple[BaseRenderer, str] = super().select_renderer(request, known, format_suffix)
        return found


class ApiView(APIView):
    """A view of the API: logged in, JSON both ways, problem+json for refusals."""

    authentication_classes: Sequence[type[BaseAuthentication]] = (
        BearerAuthentication,
        SessionAuthentication,
    )
    permission_classes: Sequence[Any] = (IsAuthenticated,)
    renderer_classes: Sequence[type[BaseRenderer]] = (JSONRenderer,)
    parser_classes = (JSONParser,)
    content_negotiation_class: type[DefaultContentNegotiation] = QuickNegotiation
    schema = ReadingSchema()

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Refuses who may not ask, and a body that is too large before it is parsed."""
        super().initial(request, *args, **kwargs)
        if request.method in UNSAFE:
            _ = request._request.body  # noqa: SLF001 - only Django's own request checks the size

    def get_exception_handler(self) -> Callable[[Exception, dict[str, Any]], Response]:
        """Every refusal has the one shape."""
        return problems.answer

    @property
    def scope(self) -> Scope:
        """What the caller may see."""
        return visible_flows(self.request.user)


class NounList(ApiView):
    """One page of a noun with its counts. ``path`` parameters that the filter knows are part of it."""

    noun: ClassVar[lens.Noun[Any]]
    asked: ClassVar[type[ListFilter]]
    serializer: ClassVar[type[serializers.Serializer[Any]]]
    schema = ListSchema()

    def get(self, request: Request, **path: str) -> Response:
        """Rows, the address of the next page, and counts that obey every filter but the lens."""
        asked = asked_for(self.asked, request, path)
        page = lens.page(self.noun, asked, self.scope)
        return Response(
            {
                "results": lines(self.serializer, page.rows),
                "next": _next(request, asked, page.next_cursor, path),
                "counts": counts_of(page.counts),
            }
        )


class NounExport(ApiView):
    """Every row that a list shows, streamed. ``limit`` and ``cursor`` have no meaning here."""

    listing: type[NounList] = NounList  # each address gives its own
    http_method_names = ("get", "options")  # no HEAD: it would prepare a result that nobody fetches

    @extend_schema(responses={200: OpenApiTypes.BINARY})
    def get(self, request: Request) -> StreamingHttpResponse:
        """A file in the format that ``format`` names: csv or ndjson."""
        name = request.query_params.get("format", "")
        if name not in exports.FORMATS:
            raise errors.InvalidInput(
                f"format: '{name[:20]}' cannot be written. Give format=csv or format=ndjson.",
                parameter="format",
            )
        content_type, write = exports.FORMATS[name]
        noun = self.listing.noun
        asked = self.listing.asked.from_query(request.query_params, ignore={"format"})
        export = exports.Export(noun, asked, self.scope)
        try:
            note_export(
                actor=request.user.get_username(),
                noun=noun.name,
                query={**asked.to_query(), "format": [name]},
                rows=export.row_count,
            )
        except Exception:
            export.close()
            raise
        file_name = f"{noun.name}-{timezone.now():%Y%m%dT%H%M%SZ}.{name}"
        return StreamingHttpResponse(
            exports.stream(export, write),
            content_type=content_type,
            headers={
                "Content-Disposition": f'attachment; filename="{file_name}"',
                "X-Daylight-Shown": str(export.counts.shown),
                "X-Daylight-Filtered": str(export.counts.filtered),
                "X-Daylight-Total": str(export.counts.total),
            },
        )


class StandingSerializer(serializers.Serializer[lens.Standing]):
    """Whether a row is current, and why not; every field is null on a current row."""

    filter_code = serializers.CharField(allow_null=True)
    filter_reason = serializers.CharField(allow_null=True)
    filtered_at = serializers.DateTimeField(allow_null=True)
    filter_detail = serializers.JSONField(allow_null=True)
    superseded_by = serializers.CharField(allow_null=True)

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """The row's own fields first, its standing last, as in exports."""
        fields = super().get_fields()
        standing = {name: fields.pop(name) for name in StandingSerializer._declared_fields}
        return {**fields, **standing}


def asked_for(kind: type[ListFilter], request: Request, path: dict[str, str]) -> ListFilter:
    """The filter of the address; what the path says cannot be said otherwise."""
    query = {name: request.query_params.getlist(name) for name in request.query_params}
    return kind.from_query({**query, **{name: [value] for name, value in path.items()}})


def counts_of(counts: lens.Counts) -> dict[str, object]:
    """The counts as every list answers them."""
    return {
        "shown": counts.shown,
        "filtered": counts.filtered,
        "total": counts.total,
        "by_reason": dict(counts.by_reason),
        "exact": counts.exact,
    }


def _next(request: Request, asked: ListFilter, cursor: str, path: dict[str, str]) -> str | None:
    if not cursor:
        return None
    query = asked.evolve(cursor=cursor).to_query()
    said = {name: values for name, values in query.items() if name not in path}
    address: str = request.build_absolute_uri(request.path)
    return f"{address}?{urlencode(said, doseq=True)}"
