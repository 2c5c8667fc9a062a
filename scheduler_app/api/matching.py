"""The records that one act is about: named in its body, or all that the address filters as a list does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scheduler_app.api.reading import asked_for
from scheduler_app.queries import lens, runs, task_instances
from scheduler_app.queries.filters import RunFilter, TaskInstanceFilter
from scheduler_app.rules.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rest_framework.request import Request

    from scheduler_app.queries.list_filter import ListFilter
    from scheduler_app.queries.scope import Scope

CHOSEN_MAX: Final = 10_000  # rows of a list that one act may be about


def runs_of(request: Request, scope: Scope, named: Sequence[int] | None) -> list[int]:
    """The runs that are named, or that the address filters. Raises ``NotFound``, ``InvalidInput``."""
    if named is None:
        return _matching(runs.NOUN, RunFilter, request, scope)
    runs.check_all(scope, named)
    return list(named)


def task_instances_of(request: Request, scope: Scope, named: Sequence[int] | None) -> list[int]:
    """The task instances that are named, or that the address filters."""
    if named is None:
        return _matching(task_instances.NOUN, TaskInstanceFilter, request, scope)
    task_instances.runs_of(scope, named)
    return list(named)


def _matching(
    noun: lens.Noun[Any], kind: type[ListFilter], request: Request, scope: Scope
) -> list[int]:
    """Raises ``InvalidInput`` for no filter, no row and too many."""
    if not request.query_params:
        raise InvalidInput(
            "Name what it is about, or filter it in the address as the list does.", field="filter"
        )
    found = lens.ids(noun, asked_for(kind, request, {}), scope, at_most=CHOSEN_MAX)
    if len(found) > CHOSEN_MAX:
        message = f"The filter has more than {CHOSEN_MAX} rows: narrow it."
        raise InvalidInput(message, field="filter")
    if not found:
        raise InvalidInput("The filter has no rows: nothing would be done.", field="filter")
    return found
