"""Records that an act is about: ticked one by one, or all that the filters of a list match."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.http import QueryDict

from scheduler_app.queries import lens, task_instances
from scheduler_app.queries.filters import TaskInstanceFilter
from scheduler_app.rules.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from django.http import HttpRequest

    from scheduler_app.queries.list_filter import ListFilter
    from scheduler_app.queries.scope import Scope

CHOSEN_MAX: Final = 500  # as many as a page of a list has at most
MATCHED_MAX: Final = 10_000  # rows of a list that one act may be about
ALL: Final = "all"  # the parameter that holds the filters of a list


def chosen(request: HttpRequest, see: Callable[[int], Any]) -> list[int]:
    """The numbers under ``id``, each once; ``see`` raises where the reader may not see one.

    Raises ``InvalidInput`` for none, for what is no number, and for too many.
    """
    given = _given(request)
    texts = list(dict.fromkeys(given.getlist("id")))
    if not texts:
        raise InvalidInput("Nothing is chosen: tick the rows first.", parameter="id")
    if len(texts) > CHOSEN_MAX:
        message = f"{len(texts)} are chosen; choose at most {CHOSEN_MAX}, or act on a filter."
        raise InvalidInput(message, parameter="id")
    wrong = [text for text in texts if not (text.isascii() and text.isdigit() and len(text) < 19)]
    if wrong:
        raise InvalidInput(f"id: {wrong[0]!r} is not the number of a record.", parameter="id")
    ids = [int(text) for text in texts]
    for number in ids:
        see(number)
    return ids


def chosen_or_matching(
    request: HttpRequest,
    scope: Scope,
    noun: lens.Noun[Any],
    kind: type[ListFilter],
    see: Callable[[int], Any],
) -> list[int]:
    """Those that the address names one by one, or all that a list's filters match.

    Raises ``InvalidInput`` for none and for too many.
    """
    given = _given(request)
    if ALL not in given:
        return chosen(request, see)
    query = QueryDict(str(given[ALL]))
    asked = kind.from_query(query, ignore=frozenset({"cursor", "limit", "filtered", "order"}))
    found = lens.ids(noun, asked, scope, at_most=MATCHED_MAX)
    if len(found) > MATCHED_MAX:
        raise InvalidInput(f"More than {MATCHED_MAX} match: narrow the filter.", parameter=ALL)
    if not found:
        raise InvalidInput("Nothing matches any more: look at the list again.", parameter=ALL)
    return found


def chosen_task_instances(request: HttpRequest, scope: Scope) -> list[int]:
    """The task instances that the address names, or that its filters match."""
    return chosen_or_matching(
        request,
        scope,
        task_instances.NOUN,
        TaskInstanceFilter,
        lambda ti: task_instances.one(scope, ti),
    )


def form_of(request: HttpRequest, ids: Sequence[int]) -> Mapping[str, Any]:
    """What a form sends back to be about the same records: the filters, or each of them."""
    matching = _given(request).get(ALL, "")
    return {"form_all": matching, "form_ids": () if matching else ids}


def _given(request: HttpRequest) -> QueryDict:
    return request.POST if request.method == "POST" else request.GET
