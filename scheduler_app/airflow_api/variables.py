"""Variables: lists, one, changes, and many at once."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from django.db import transaction
from rest_framework.response import Response

from scheduler_app.airflow_api import bodies, bulk, parameters, shapes
from scheduler_app.airflow_api.bodies import Field
from scheduler_app.airflow_api.views import REASON, AirflowView, duplicate
from scheduler_app.operations.variables import delete_variable, set_variable
from scheduler_app.queries import by_offset, variables
from scheduler_app.rules.errors import Conflict, InvalidInput, NotFound

if TYPE_CHECKING:
    from rest_framework.request import Request

    from scheduler_app.queries.scope import Scope
    from scheduler_app.queries.variables import VariableRow

ORDERS: Final = {"key": "key", "id": "key", "description": "description"}
VARIABLE: Final = {
    "key": Field(bodies.text),
    "value": Field(bodies.anything),
    "description": Field(bodies.optional(bodies.text), None),
    "team_name": Field(bodies.optional(bodies.text), None),
}


class VariableList(AirflowView):
    """Variables; a POST creates one, a PATCH carries out many acts."""

    def get(self, request: Request) -> Response:
        """Variables, page by page; secrets are masked."""
        window = parameters.window(request, ORDERS, default="key")
        page = by_offset.page(
            variables.NOUN,
            self.scope,
            where=parameters.pattern(request, "variable_key", "key"),
            order=window.order,
            limit=window.limit,
            offset=window.offset,
        )
        return Response(
            {
                "variables": [shapes.variable(row) for row in page.rows],
                "total_entries": page.total,
            }
        )

    def post(self, request: Request) -> Response:
        """The variable is there."""
        body = bodies.read(request, VARIABLE)
        try:
            self.create(body)
        except Conflict as error:
            return duplicate(str(error))
        return Response(
            shapes.variable(variable_of(self.scope, body["key"])), status=HTTPStatus.CREATED
        )

    def patch(self, request: Request) -> Response:
        """What became of each act, by its kind."""
        return bulk.answer(
            request,
            VARIABLE,
            bulk.Acts(
                create=self.create,
                update=self.update,
                delete=self.delete_one,
                name=lambda entity: str(entity["key"]),
                exists=lambda name: (
                    by_offset.page(
                        variables.NOUN,
                        self.scope,
                        where=parameters.named("key", name),
                        order=(),
                        limit=1,
                    ).total
                    > 0
                ),
            ),
        )

    def create(self, body: dict[str, Any]) -> None:
        """The variable is new."""
        _refuse_team(body)
        set_variable(
            key=body["key"],
            value=body["value"],
            description=body["description"],
            actor=self.actor,
            reason=REASON,
            must_be_new=True,
        )

    def update(self, body: dict[str, Any]) -> None:
        """The variable, which was there, has another value."""
        _refuse_team(body)
        set_variable(
            key=body["key"],
            value=body["value"],
            description=body["description"],
            actor=self.actor,
            reason=REASON,
            must_exist=True,
        )

    def delete_one(self, name: str) -> None:
        """The variable is gone."""
        delete_variable(key=name, actor=self.actor, reason=REASON)


class VariableDetail(AirflowView):
    """One variable."""

    def get(self, request: Request, key: str) -> Response:
        """Its fields; a secret is masked."""
        del request
        return Response(shapes.variable(variable_of(self.scope, key)))

    def patch(self, request: Request, key: str) -> Response:
        """It has what the body says, or the part of it that ``update_mask`` names."""
        body = bodies.read(request, VARIABLE)
        _refuse_team(body)
        if body["key"] != key:
            raise InvalidInput("Invalid body, key from request body doesn't match uri parameter")
        variable_of(self.scope, key)
        wanted = request.query_params.getlist("update_mask") or ["value", "description"]
        changes = {name: body[name] for name in ("value", "description") if name in wanted}
        set_variable(key=key, actor=self.actor, reason=REASON, must_exist=True, **changes)
        return self.get(request, key)

    def delete(self, request: Request, key: str) -> Response:
        """It is gone."""
        del request
        variable_of(self.scope, key)
        with transaction.atomic():
            delete_variable(key=key, actor=self.actor, reason=REASON)
        return Response(status=HTTPStatus.NO_CONTENT)


def variable_of(scope: Scope, key: str) -> VariableRow:
    """The variable. Raises ``NotFound`` in Airflow's words."""
    try:
        return variables.one(scope, key)
    except NotFound:
        message = f"The Variable with key: `{key}` was not found"
        raise NotFound(message) from None


def _refuse_team(body: dict[str, Any]) -> None:
    if body["team_name"] is not None:
        raise InvalidInput("team_name: Daylight has no teams; leave it out, or null.")
