"""Topics of the live feed: which there are, and which of them a reader may follow."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from scheduler_app.models import Attempt, Flow, Run, TaskInstance
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.rules import definition, errors

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from django.db.models import QuerySet

    from scheduler_app.queries.scope import Scope

TOPIC_LENGTH_MAX: Final = 300  # characters; a flow id has 250
# Lists that hold rows of many flows: that one of them changed says nothing about any flow.
OF_EVERYONE: Final = frozenset({"home", "flows", "runs", "incidents", "reviews", "backfills"})
OF_NO_FLOW: Final = frozenset({"leases", "jobs", "pools", "ghosts", "variables", "connections"})
_NUMBER: Final = re.compile(r"[0-9]{1,18}")


def _number(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _flow_id(text: str) -> str | None:
    return text if definition.FLOW_OR_TASK_ID.fullmatch(text) else None


# Kind of topic -> how its id is read, and where its flow is found.
_OF_ONE: Final[dict[str, tuple[Callable[[str], Any], Callable[[], QuerySet[Any]], str]]] = {
    "flow": (_flow_id, Flow.objects.all, "flow_id"),
    "run": (_number, Run.objects.all, "flow_id"),
    "ti": (_number, TaskInstance.objects.all, "run__flow_id"),
    "attempt": (_uuid, Attempt.objects.all, "run__flow_id"),
    "log": (_uuid, Attempt.objects.all, "run__flow_id"),
}


def check(topic: object) -> str:
    """The topic, if it is one. Raises ``InvalidInput``."""
    if isinstance(topic, str) and len(topic) <= TOPIC_LENGTH_MAX:
        kind, colon, text = topic.partition(":")
        if not colon and kind in OF_EVERYONE | OF_NO_FLOW:
            return topic
        if colon and kind in _OF_ONE and _OF_ONE[kind][0](text) is not None:
            return topic
    known = ", ".join([*sorted(OF_EVERYONE | OF_NO_FLOW), *(f"{kind}:ID" for kind in _OF_ONE)])
    raise errors.InvalidInput(f"{str(topic)[:80]!r} is no topic. There are: {known}.")


def visible(scope: Scope, topics: Collection[str]) -> frozenset[str]:
    """The topics among these (all checked) that the scope may follow."""
    if scope == EVERYTHING:
        return frozenset(topics)
    if scope.flow_ids == frozenset() and not scope.sees_shared:
        return frozenset()
    return frozenset(topic for topic in topics if _is_visible(scope, topic))


def _is_visible(scope: Scope, topic: str) -> bool:
    if topic in OF_EVERYONE:
        return True
    if topic in OF_NO_FLOW:
        return scope.sees_shared
    kind, _, text = topic.partition(":")
    read, rows, flow = _OF_ONE[kind]
    return scope.owned(rows().filter(pk=read(text)), flow).exists()
