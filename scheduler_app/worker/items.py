"""What mapped tasks get of the database: one element for one instance, and results in their order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from psycopg.rows import tuple_row

from scheduler_app.rules import mapping, values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import psycopg

    from scheduler_app.rules.mapping import MappedTask

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a task instance stands among the mapped ones of its run."""

    task_id: str
    map_index: int
    mapped: Mapping[str, MappedTask]

    def index_of(self, task_id: str) -> int | None:
        """The map index at which this instance sees the task; null: it sees the list of all."""
        other = self.mapped.get(task_id)
        if other is None:
            return mapping.SUMMARY
        own = self.mapped.get(self.task_id)
        if own and own.group and own.group == other.group and self.map_index >= 0:
            return self.map_index
        return None


@dataclass(slots=True, kw_only=True)
class StoredItems:
    """What an instance maps over, element by element: the others are not read."""

    ask: Callable[[Callable[[psycopg.Connection[Any]], Any]], Any]
    run_id: int
    mapped: Mapping[str, MappedTask]
    map_index: int = mapping.SUMMARY  # of the instance itself
    given: Mapping[str, Any] = field(default_factory=dict)  # elements that came with its claim
    asked: set[str] = field(default_factory=set)  # tasks whose element at its own index it wanted
    _lengths: dict[str, int | None] = field(default_factory=dict)

    def length(self, task_id: str) -> int | None:
        """How many elements the task's result has; of a mapped task: how many results there are."""
        if task_id not in self._lengths:
            query = _COUNT if task_id in self.mapped else _LENGTH
            row = self.ask(lambda connection: _row(connection, query, self._given(task_id)))
            self._lengths[task_id] = None if row is None else row[0]
        return self._lengths[task_id]

    def item(self, task_id: str, place: int) -> Any:
        """The element of the task's result at this place. Raises ``IndexError``."""
        if place == self.map_index and task_id not in self.mapped:
            self.asked.add(task_id)
            if task_id in self.given:
                return values.decode(self.given[task_id])
        query = _RESULT_AT if task_id in self.mapped else _ELEMENT
        given = {**self._given(task_id), "place": place}
        row = self.ask(lambda connection: _row(connection, query, given))
        if row is None or not row[1]:
            raise IndexError(place)
        if row[2] == "dict":
            return tuple(values.decode(row[0]))
        if (
            row[2] == "object"
        ):  # stored before its task was mapped over: without an order of its own
            return values.decode(mapping.stored_elements(row[0])[place])
        return values.decode(row[0])

    def whole(self, task_id: str) -> Any:
        """The whole result of the task."""
        return self.ask(
            lambda connection: seen_results(
                connection,
                run_id=self.run_id,
                task_ids=[task_id],
                place=Place(task_id="", map_index=mapping.SUMMARY, mapped=self.mapped),
            )
        )[task_id]

    def _given(self, task_id: str) -> dict[str, Any]:
        return {"run": self.run_id, "task": task_id}


_FROM: Final = """
  FROM task_instance i JOIN attempt p ON p.id = i.attempt_id AND p.is_accepted
 WHERE i.run_id = %(run)s AND i.task_id = %(task)s AND i.state = 'success'
"""
_IS_TAGGED: Final = "p.result->>'__daylight__' IN ('tuple', 'dict')"
_LENGTH: Final = f"""
SELECT CASE WHEN jsonb_typeof(p.result) = 'array' THEN jsonb_array_length(p.result)
            WHEN {_IS_TAGGED} THEN jsonb_array_length(p.result->'value')
            WHEN jsonb_typeof(p.result) = 'object'
              THEN (SELECT count(*)::int FROM jsonb_object_keys(p.result)) END
{_FROM} AND i.map_index = -1
"""  # noqa: S608 - only constants are put together
_ELEMENT: Final = f"""
SELECT CASE WHEN jsonb_typeof(p.result) = 'array' THEN p.result->%(place)s::int
            WHEN {_IS_TAGGED} THEN p.result->'value'->%(place)s::int ELSE p.result END,
       CASE WHEN jsonb_typeof(p.result) = 'array' THEN %(place)s < jsonb_array_length(p.result)
            WHEN {_IS_TAGGED} THEN %(place)s < jsonb_array_length(p.result->'value')
            ELSE jsonb_typeof(p.result) = 'object' END,
       CASE WHEN {_IS_TAGGED} THEN p.result->>'__daylight__' ELSE jsonb_typeof(p.result) END
{_FROM} AND i.map_index = -1
"""
_COUNT: Final = f"SELECT count(*)::int {_FROM} AND i.map_index >= 0 AND p.result IS NOT NULL"
# Its place among those that returned something: the index itself, where all before it have.
_RESULT_AT: Final = f"""
SELECT p.result, true, 'item' {_FROM} AND i.map_index >= 0 AND p.result IS NOT NULL
 ORDER BY i.map_index OFFSET %(place)s LIMIT 1
"""


def _row(connection: psycopg.Connection[Any], query: Any, given: Mapping[str, Any]) -> Any:
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(query, given)
        return cursor.fetchone()


def seen_results(
    connection: psycopg.Connection[Any], *, run_id: int, task_ids: Iterable[str], place: Place
) -> dict[str, Any]:
    """The results of these tasks as the instance at this place sees them; one that has none: ``None``.

    Of a mapped task the list of those that its instances returned, in their order; within a mapped
    group that of the same map index. Tasks that the run does not have are left out.
    """
    wanted = {task_id: place.index_of(task_id) for task_id in task_ids}
    found: dict[str, Any] = {}
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT i.task_id, p.result FROM unnest(%s::text[], %s::int[]) AS u(task_id, map_index)"
            " JOIN task_instance i ON i.run_id = %s AND i.task_id = u.task_id"
            "  AND i.map_index = u.map_index"
            " LEFT JOIN attempt p ON p.id = i.attempt_id AND i.state = 'success'",
            [
                [task_id for task_id, index in wanted.items() if index is not None],
                [index for index in wanted.values() if index is not None],
                run_id,
            ],
        )
        found.update((task_id, values.decode(raw)) for task_id, raw in cursor.fetchall())
        for task_id, index in wanted.items():
            if index is None:
                cursor.execute(
                    f"SELECT p.result {_FROM} AND i.map_index >= 0 AND p.result IS NOT NULL"
                    " ORDER BY i.map_index",
                    {"run": run_id, "task": task_id},
                )
                found[task_id] = [values.decode(row[0]) for row in cursor.fetchall()]
    return found
