"""Connections: lists, one, changes, and many at once. What opens them is masked."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from rest_framework.response import Response

from scheduler_app.airflow_api import bodies, bulk, parameters, shapes
from scheduler_app.airflow_api.bodies import Field
from scheduler_app.airflow_api.views import REASON, AirflowView, duplicate, refusal
from scheduler_app.operations.connections import delete_connection, set_connection
from scheduler_app.queries import by_offset, connections
from scheduler_app.rules import connections as rules
from scheduler_app.rules.errors import Conflict, InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rest_framework.request import Request

    from scheduler_app.queries.connections import ConnectionRow
    from scheduler_app.queries.scope import Scope

ORDERS: Final = {
    **{name: name for name in ("conn_type", "description", "host", "port", "connection_id")},
    "conn_id": "connection_id",
    "id": "connection_id",
}
TEXTS: Final = ("host", "login", "schema", "password", "description")
CONNECTION: Final = {
    "connection_id": Field(bodies.text),
    "conn_type": Field(bodies.text),
    **{name: Field(bodies.optional(bodies.text), None) for name in TEXTS},
    "port": Field(bodies.optional(bodies.integer), None),
    "extra": Field(bodies.optional(bodies.text), None),
    "team_name": Field(bodies.optional(bodies.text), None),
}
CHANGED: Final = ("conn_type", *TEXTS, "port", "extra")
NO_TEST: Final = (
    "Testing connections is disabled: Daylight has no drivers of its own, and its web process calls"
    " no address that a request names. Test a connection in a task."
)


class ConnectionList(AirflowView):
    """Connections; a POST creates one, a PATCH carries out many acts."""

    def get(self, request: Request) -> Response:
        """Connections, page by page."""
        window = parameters.window(request, ORDERS, default="connection_id")
        where = parameters.pattern(request, "connection_id", "connection_id")
        page = by_offset.page(
            connections.NOUN,
            self.scope,
            where=where,
            order=window.order,
            limit=window.limit,
            offset=window.offset,
        )
        return Response(
            {
                "connections": [shapes.connection(row) for row in page.rows],
                "total_entries": page.total,
            }
        )

    def post(self, request: Request) -> Response:
        """The connection is there."""
        body = bodies.read(request, CONNECTION)
        try:
            self.create(body)
        except Conflict as error:
            return duplicate(str(error))
        made = connection_of(self.scope, body["connection_id"])
        return Response(shapes.connection(made), status=HTTPStatus.CREATED)

    def patch(self, request: Request) -> Response:
        """What became of each act, by its kind."""
        return bulk.answer(
            request,
            CONNECTION,
            bulk.Acts(
                create=self.create,
                update=self.update,
                delete=self.delete_one,
                name=lambda entity: str(entity["connection_id"]),
                exists=lambda name: (
                    by_offset.page(
                        connections.NOUN,
                        self.scope,
                        where=parameters.named("connection_id", name),
                        order=(),
                        limit=1,
                    ).total
                    > 0
                ),
            ),
        )

    def create(self, body: dict[str, Any]) -> None:
        """The connection is new."""
        self._set(body, must_be_new=True)

    def update(self, body: dict[str, Any]) -> None:
        """The connection, which was there, is as the body says."""
        self._set(body, must_exist=True)

    def delete_one(self, name: str) -> None:
        """The connection is gone."""
        delete_connection(connection_id=name, actor=self.actor, reason=REASON)

    def _set(self, body: dict[str, Any], **how: bool) -> None:
        set_connection(
            connection_id=body["connection_id"],
            actor=self.actor,
            reason=REASON,
            **how,
            **said_in(body, CHANGED),
        )


class ConnectionDetail(AirflowView):
    """One connection."""

    def get(self, request: Request, connection_id: str) -> Response:
        """Its fields; password and extras are masked."""
        del request
        return Response(shapes.connection(connection_of(self.scope, connection_id)))

    def patch(self, request: Request, connection_id: str) -> Response:
        """It has what the body says, or the part of it that ``update_mask`` names."""
        body = bodies.read(request, CONNECTION)
        if body["connection_id"] != connection_id:
            raise InvalidInput(
                "The connection_id in the request body does not match the URL parameter"
            )
        connection_of(self.scope, connection_id)
        mask = request.query_params.getlist("update_mask")
        # What a body leaves out stays as it is.
        wanted = mask or [name for name in CHANGED if name in request.data]
        set_connection(
            connection_id=connection_id,
            actor=self.actor,
            reason=REASON,
            must_exist=True,
            **said_in(body, [name for name in CHANGED if name in wanted]),
        )
        return self.get(request, connection_id)

    def delete(self, request: Request, connection_id: str) -> Response:
        """It is gone."""
        del request
        connection_of(self.scope, connection_id)
        delete_connection(connection_id=connection_id, actor=self.actor, reason=REASON)
        return Response(status=HTTPStatus.NO_CONTENT)


class ConnectionTest(AirflowView):
    """Says that nothing is called from here, as Airflow does unless it is told otherwise."""

    def post(self, request: Request) -> Response:
        """403, with what to do instead."""
        bodies.read(request, CONNECTION)
        return refusal(HTTPStatus.FORBIDDEN, NO_TEST)


def said_in(body: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """What the body says of these fields, as ``set_connection`` takes it. Raises ``InvalidInput``."""
    if body["team_name"] is not None:
        raise InvalidInput("team_name: Daylight has no teams; leave it out, or null.")
    said = {name: body[name] for name in names}
    for name in TEXTS:
        if name in said:
            said[name] = said[name] or ""
    if "extra" in said:
        said["extra"] = rules.extra_of(said["extra"])
    return said


def connection_of(scope: Scope, connection_id: str) -> ConnectionRow:
    """The connection. Raises ``NotFound`` in Airflow's words."""
    try:
        return connections.one(scope, connection_id)
    except NotFound:
        message = f"The Connection with connection_id: `{connection_id}` was not found"
        raise NotFound(message) from None
