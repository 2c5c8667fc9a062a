"""How the API description (OpenAPI) is told of lists, without repeating their filters."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter, inline_serializer
from rest_framework import serializers

from scheduler_app.api.errors import CONTENT_TYPE, ProblemSerializer
from scheduler_app.queries.list_filter import LIMIT_DEFAULT, LIMIT_MAX, ListFilter

if TYPE_CHECKING:
    from scheduler_app.queries.parameters import Parameter

_TYPES: Final[dict[str, dict[str, str]]] = {
    "string": {"type": "string"},
    "integer": {"type": "integer"},
    "uuid": {"type": "string", "format": "uuid"},
    "date-time": {"type": "string", "format": "date-time"},
}


class CountsSerializer(serializers.Serializer[Any]):
    """How many rows a list has, under every filter but ``filtered`` and ``why``."""

    shown = serializers.IntegerField()
    filtered = serializers.IntegerField()
    total = serializers.IntegerField()
    by_reason = serializers.DictField(child=serializers.IntegerField())
    exact = serializers.BooleanField()


class ReadingSchema(AutoSchema):
    """Refusals are part of every answer."""

    def get_operation(self, *args: Any, **kwargs: Any) -> Any:
        """The operation, with the shape of a refusal beside its own answers."""
        operation = super().get_operation(*args, **kwargs)
        if operation is not None:
            problem = self.resolve_serializer(ProblemSerializer, "response")
            operation["responses"]["4XX"] = {
                "description": "Refused.",
                "content": {CONTENT_TYPE: {"schema": problem.ref}},
            }
        return operation


class ListSchema(ReadingSchema):
    """The parameters of a list are those of its filter; its answer is a page."""

    def get_operation_id(self) -> str:
        """A list is told from one row by its name."""
        name: str = super().get_operation_id()
        return name.removesuffix("_retrieve") + "_list" if self.method == "GET" else name

    def get_override_parameters(self) -> Any:
        """What may be asked for."""
        view: Any = self.view
        asked: type[ListFilter] = view.asked
        if self.method != "GET":
            return []
        own = [_described(name, one) for name, one in asked.parameters().items()]
        return [*own, *_lens_and_page(asked)]

    def get_response_serializers(self) -> Any:
        """Rows, next, counts."""
        if self.method != "GET":
            return super().get_response_serializers()
        view: Any = self.view
        return _page_of(view.serializer)


@cache  # one kind of page for each kind of row, or the description has two of one name
def _page_of(row: type[serializers.Serializer[Any]]) -> serializers.Serializer[Any]:
    return inline_serializer(
        name=row.__name__.replace("Serializer", "Page"),
        fields={
            "results": row(many=True),
            "next": serializers.URLField(allow_null=True),
            "counts": CountsSerializer(),
        },
    )


def _described(name: str, parameter: Parameter) -> OpenApiParameter:
    kind: dict[str, Any] = dict(_TYPES[parameter.kind])
    if parameter.choices:
        kind["enum"] = list(parameter.choices)
    if not parameter.is_repeated:
        return OpenApiParameter(name, kind)
    return OpenApiParameter(name, {"type": "array", "items": kind}, explode=True)


def _lens_and_page(asked: type[ListFilter]) -> list[OpenApiParameter]:
    orders = [sign + column for column in asked.ORDERS for sign in ("", "-")]
    return [
        OpenApiParameter(
            "filtered",
            {"type": "string", "enum": ["1", "only"]},
            description="1: filtered rows among the current ones; only: filtered rows alone.",
        ),
        OpenApiParameter("why", description="Reason codes, with commas; alone it means only."),
        OpenApiParameter(
            "limit",
            {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT},
        ),
        OpenApiParameter("cursor", description="From the address in next."),
        OpenApiParameter("order", {"type": "string", "enum": orders}),
        OpenApiParameter(
            "count",
            {"type": "string", "enum": ["exact"]},
            description="Counts beyond 10,000 are capped unless they must be exact.",
        ),
    ]
