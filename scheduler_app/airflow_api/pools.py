"""Pools: lists, one, changes, and many at once."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from rest_framework.response import Response

from scheduler_app.airflow_api import bodies, bulk, parameters, shapes
from scheduler_app.airflow_api.bodies import Field
from scheduler_app.airflow_api.views import REASON, AirflowView, duplicate
from scheduler_app.operations.pools import DEFAULT_POOL, change_pool, create_pool, delete_pool
from scheduler_app.queries import by_offset, pools
from scheduler_app.rules.errors import Conflict, InvalidInput, NotFound

if TYPE_CHECKING:
    from rest_framework.request import Request

    from scheduler_app.queries.pools import PoolRow
    from scheduler_app.queries.scope import Scope

ORDERS: Final = {"name": "name", "pool": "name", "id": "name", "slots": "slots"}
POOL: Final = {
    "name": Field(bodies.text),
    "slots": Field(bodies.integer),
    "description": Field(bodies.optional(bodies.text), None),
    "include_deferred": Field(bodies.boolean, False),
    "team_name": Field(bodies.optional(bodies.text), None),
}
CHANGES: Final = {
    "pool": Field(bodies.optional(bodies.text), None),
    "name": Field(bodies.optional(bodies.text), None),
    "slots": Field(bodies.optional(bodies.integer), None),
    "description": Field(bodies.optional(bodies.text), None),
    "include_deferred": Field(bodies.optional(bodies.boolean), None),
    "team_name": Field(bodies.optional(bodies.text), None),
}


class PoolList(AirflowView):
    """Pools; a POST creates one, a PATCH carries out many acts."""

    def get(self, request: Request) -> Response:
        """Pools, page by page."""
        window = parameters.window(request, ORDERS, default="name")
        page = by_offset.page(
            pools.NOUN,
            self.scope,
            where=parameters.pattern(request, "pool_name", "name"),
            order=window.order,
            limit=window.limit,
            offset=window.offset,
        )
        return Response(
            {"pools": [shapes.pool(row) for row in page.rows], "total_entries": page.total}
        )

    def post(self, request: Request) -> Response:
        """The pool is there."""
        body = bodies.read(request, POOL)
        try:
            self.create(body)
        except Conflict as error:
            return duplicate(str(error))
        return Response(shapes.pool(pool_of(self.scope, body["name"])), status=HTTPStatus.CREATED)

    def patch(self, request: Request) -> Response:
        """What became of each act, by its kind."""
        return bulk.answer(
            request,
            POOL,
            bulk.Acts(
                create=self.create,
                update=self.update,
                delete=self.delete_one,
                name=lambda entity: str(entity["name"]),
                exists=lambda name: (
                    by_offset.page(
                        pools.NOUN,
                        self.scope,
                        where=parameters.named("name", name),
                        order=(),
                        limit=1,
                    ).total
                    > 0
                ),
            ),
        )

    def create(self, body: dict[str, Any]) -> None:
        """The pool is new."""
        create_pool(
            name=body["name"],
            slots=body["slots"],
            description=body["description"] or "",
            include_deferred=body["include_deferred"],
            actor=self.actor,
            reason=REASON,
        )

    def update(self, body: dict[str, Any]) -> None:
        """The pool, which was there, is as the body says."""
        change_pool(
            name=body["name"],
            slots=body["slots"],
            description=body["description"],
            include_deferred=body["include_deferred"],
            actor=self.actor,
            reason=REASON,
        )

    def delete_one(self, name: str) -> None:
        """The pool is gone."""
        delete_pool(name=name, actor=self.actor, reason=REASON)


class PoolDetail(AirflowView):
    """One pool."""

    def get(self, request: Request, name: str) -> Response:
        """Its slots."""
        del request
        return Response(shapes.pool(pool_of(self.scope, name)))

    def patch(self, request: Request, name: str) -> Response:
        """It has what the body says, or the part of it that ``update_mask`` names."""
        body = bodies.read(request, CHANGES)
        pool_of(self.scope, name)
        said = body["pool"] or body["name"]
        if said not in (None, name):
            raise InvalidInput(
                "Invalid body, pool name from request body doesn't match uri parameter"
            )
        mask = request.query_params.getlist("update_mask")
        wanted = ("slots", "description", "include_deferred")
        if name == DEFAULT_POOL and any(one not in ("slots", "include_deferred") for one in mask):
            raise InvalidInput("Only slots and included_deferred can be modified on Default Pool")
        changes = {one: body[one] for one in wanted if not mask or one in mask}
        change_pool(name=name, actor=self.actor, reason=REASON, **changes)
        return self.get(request, name)

    def delete(self, request: Request, name: str) -> Response:
        """It is gone."""
        del request
        if name == DEFAULT_POOL:
            raise InvalidInput("Default Pool can't be deleted")
        pool_of(self.scope, name)
        delete_pool(name=name, actor=self.actor, reason=REASON)
        return Response(status=HTTPStatus.NO_CONTENT)


def pool_of(scope: Scope, name: str) -> PoolRow:
    """The pool. Raises ``NotFound`` in Airflow's words."""
    try:
        return pools.one(scope, name)
    except NotFound:
        message = f"The Pool with name: `{name}` was not found"
        raise NotFound(message) from None
