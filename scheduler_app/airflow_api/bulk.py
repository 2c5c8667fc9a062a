"""Many acts in one request: each entity by itself, with what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rest_framework.response import Response

from scheduler_app.airflow_api import bodies
from scheduler_app.airflow_api.bodies import Field, Wrong
from scheduler_app.rules.errors import Conflict, InvalidInput, NotFound, SchedulerError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rest_framework.request import Request

ENTITIES_MAX: Final = 1000  # of one request
STATUSES: Final = {Conflict.code: 409, NotFound.code: 404, InvalidInput.code: 400}


@dataclass(frozen=True, slots=True, kw_only=True)
class Acts:
    """How one noun is acted on."""

    create: Callable[[dict[str, Any]], None]
    update: Callable[[dict[str, Any]], None]
    delete: Callable[[str], None]
    name: Callable[[dict[str, Any]], str]
    exists: Callable[[str], bool]


def answer(request: Request, entity: Mapping[str, Field], acts: Acts) -> Response:
    """The names that went well and the faults, by kind of act. Raises ``Unprocessable``."""
    fields = {"actions": Field(bodies.listed(bodies.mapping))}
    done: dict[str, dict[str, Any]] = {}
    given = bodies.read(request, fields)["actions"]
    for place, action in enumerate(given):
        where = ["body", "actions", place]
        kind = _choice(action, "action", where, ("create", "update", "delete"))
        on = f"action_on_{'existence' if kind == 'create' else 'non_existence'}"
        choices = ("fail", "skip", "overwrite") if kind == "create" else ("fail", "skip")
        mode = _choice(action, on, where, choices, default="fail")
        told = done.setdefault(kind, {"success": [], "errors": []})
        entities = action.get("entities")
        if not isinstance(entities, list) or len(entities) > ENTITIES_MAX:
            raise InvalidInput(f"actions: entities is a list of at most {ENTITIES_MAX}.")
        for number, each in enumerate(entities):
            here = [*where, "entities", number]
            name = _act(kind, each, entity, acts, mode, here, told["errors"])
            if name is not None:
                told["success"].append(name)
    return Response(done)


def _act(
    kind: str,
    each: Any,
    entity: Mapping[str, Field],
    acts: Acts,
    mode: str,
    where: list[Any],
    faults: list[dict[str, Any]],
) -> str | None:
    """The name of what was done; none if it was passed over or is told among the faults."""
    try:
        if kind == "delete":
            if not isinstance(each, str):
                raise bodies.Unprocessable(
                    [bodies.fault("string_type", where, "Input should be a valid string", each)]
                )
            if mode == "skip" and not acts.exists(each):
                return None
            acts.delete(each)
            return each
        if not isinstance(each, dict):
            raise bodies.Unprocessable(
                [bodies.fault("dict_type", where, "Input should be a valid dictionary", each)]
            )
        body = bodies.read_object(each, entity, where=where)
        name = acts.name(body)
        is_there = acts.exists(name)
        if mode == "skip" and is_there == (kind == "create"):
            return None
        if kind == "update" or (mode == "overwrite" and is_there):
            acts.update(body)
        else:
            acts.create(body)
    except SchedulerError as error:
        faults.append({"error": str(error), "status_code": STATUSES.get(error.code, 409)})
        return None
    return name


def _choice(
    action: dict[str, Any],
    name: str,
    where: list[Any],
    choices: tuple[str, ...],
    default: str | None = None,
) -> str:
    try:
        return bodies.choice(*choices)(action.get(name, default))
    except Wrong as wrong:
        raise bodies.Unprocessable(
            [bodies.fault(wrong.kind, [*where, name], wrong.message, action.get(name))]
        ) from None
