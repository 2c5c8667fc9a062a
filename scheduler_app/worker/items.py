"""What mapped tasks get of the database: one element for one instance, and results in their order."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from psycopg.rows import tuple_row

from scheduler_app.rules import mapping, values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from uuid import UUID

    import psycopg

    from scheduler_app.rules.mapping import MappedTask

T = TypeVar("T")
LOOKS_MAX: Final = 3  # at results that are moved between one look and the next
LISTS_KEPT_MAX: Final = 2  # large ones, each no larger than a result may be
ORDERS_KEPT_MAX: Final = 8  # a hundred thousand results of one task take 1.2 MB


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
    # What came with its claim, by task: [element], or [null, id of the attempt that returned a large list].
    given: Mapping[str, list[Any]] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)  # tasks whose element at its own index it wanted
    _lengths: dict[str, int | None] = field(default_factory=dict)

    def length(self, task_id: str) -> int | None:
        """How many elements the task's result has; of a mapped task: how many results there are."""
        if task_id in self.mapped:
            order = _orders.get((self.run_id, task_id))
            if order is None or not order.indexes or self._row_of(task_id, order, 0) is None:
                order = self._order(task_id)
            return len(order.indexes)
        if task_id not in self._lengths:
            row = self.ask(lambda connection: _row(connection, _LENGTH, self._given(task_id)))
            self._lengths[task_id] = None if row is None else row[0]
        return self._lengths[task_id]

    def item(self, task_id: str, place: int) -> Any:
        """The element of the task's result at this place. Raises ``IndexError``."""
        if task_id in self.mapped:
            return self._result_at(task_id, place)
        if place == self.map_index:
            self.asked.add(task_id)
            if task_id in self.given:
                return self._of_given(self.given[task_id], place)
        given = {**self._given(task_id), "place": place}
        row = self.ask(lambda connection: _row(connection, _ELEMENT, given))
        if row is None or not row[1]:
            raise IndexError(place)
        if row[2] == "dict":
            return tuple(values.decode(row[0]))
        if (
            row[2] == "object"
        ):  # stored before its task was mapped over: without an order of its own
            return values.decode(mapping.stored_elements(row[0])[place])
        return values.decode(row[0])

    def _of_given(self, given: list[Any], place: int) -> Any:
        if len(given) == 1:
            return values.decode(given[0])
        attempt_id = given[1]
        if attempt_id not in _lists:
            row = self.ask(lambda connection: _row(connection, _WHOLE, {"attempt": attempt_id}))
            _lists[attempt_id] = [] if row is None else mapping.stored_elements(row[0])
            while len(_lists) > LISTS_KEPT_MAX:
                _lists.popitem(last=False)
        return values.decode(_lists[attempt_id][place])

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

    def _result_at(self, task_id: str, place: int) -> Any:
        """The result at this place among those of a mapped task that returned something."""
        order = _orders.get((self.run_id, task_id)) or self._order(task_id)
        for _ in range(LOOKS_MAX):
            row = self._row_of(task_id, order, place) if place < len(order.indexes) else None
            if row is not None:
                return values.decode(row[3])
            order = self._order(task_id)
        raise IndexError(place)

    def _row_of(self, task_id: str, order: _Order, place: int) -> Any:
        """What is stored at this place; ``None`` where the order is no longer as it was read."""
        given = {**self._given(task_id), "index": order.indexes[place]}
        row = self.ask(lambda connection: _row(connection, _RESULT, given))
        return row if row is not None and order.holds_for(place, row) else None

    def _order(self, task_id: str) -> _Order:
        """Which instances of the mapped task returned something, as it is now."""
        rows = self.ask(lambda connection: _rows(connection, _ORDER, self._given(task_id)))
        found = [row for row in rows if row[3]]
        order = _Order(
            stamp=(rows[0][0], rows[0][1]) if rows else (0, 0),
            indexes=array("i", [row[2] for row in found]),
            attempts=array("Q", [_short(row[4]) for row in found]),
        )
        if rows and not any(row[5] for row in rows):
            _orders[self.run_id, task_id] = order
            while len(_orders) > ORDERS_KEPT_MAX:
                _orders.popitem(last=False)
        return order

    def _given(self, task_id: str) -> dict[str, Any]:
        return {"run": self.run_id, "task": task_id}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """The map indexes of those that returned something, in their order.

    Once all of the task has ended, this changes only by an act, which raises the run's revision, by the
    next attempt of the run, or by the next attempt of a group, which has all of it executed anew.
    """

    stamp: tuple[int, int]  # the run's revision and run attempt
    indexes: array[int]
    attempts: array[int]  # a part of each one's id, which tells it from any later one

    def holds_for(self, place: int, row: tuple[Any, ...]) -> bool:
        """Whether what was read at this place is still what the order says of it."""
        return self.stamp == (row[0], row[1]) and self.attempts[place] == _short(row[2])


# What the attempts of this process share: else each would count all that stands before its own element.
_orders: Final[OrderedDict[tuple[int, str], _Order]] = OrderedDict()

# By the id of the attempt that returned it, which never returns another: what siblings map over, as it is stored.
_lists: Final[OrderedDict[str, list[Any]]] = OrderedDict()


def _short(attempt_id: UUID) -> int:
    return attempt_id.int & (2**64 - 1)


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
_WHOLE: Final = "SELECT p.result FROM attempt p WHERE p.id = %(attempt)s AND p.is_accepted"
_ORDER: Final = """
SELECT r.revision, r.run_attempt, i.map_index, p.result IS NOT NULL, i.attempt_id, i.is_open
  FROM run r
  JOIN task_instance i ON i.run_id = r.id AND i.task_id = %(task)s AND i.map_index >= 0
  LEFT JOIN attempt p ON p.id = i.attempt_id AND p.is_accepted AND i.state = 'success'
 WHERE r.id = %(run)s
 ORDER BY i.map_index
"""
_RESULT: Final = """
SELECT r.revision, r.run_attempt, p.id, p.result
  FROM run r
  JOIN task_instance i ON i.run_id = r.id AND i.task_id = %(task)s AND i.map_index = %(index)s
  JOIN attempt p ON p.id = i.attempt_id AND p.is_accepted AND p.result IS NOT NULL
 WHERE r.id = %(run)s AND i.state = 'success'
"""


def _row(connection: psycopg.Connection[Any], query: Any, given: Mapping[str, Any]) -> Any:
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(query, given)
        return cursor.fetchone()


def _rows(connection: psycopg.Connection[Any], query: Any, given: Mapping[str, Any]) -> list[Any]:
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(query, given)
        return cursor.fetchall()


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
