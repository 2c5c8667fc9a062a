"""The context of one attempt, and what the worker does for it while it runs."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, LiteralString
from uuid import UUID, uuid5

from django.conf import settings
from psycopg.rows import tuple_row

from scheduler_app.authoring.artifacts import BYTES_MAX, TITLE_CHARACTERS_MAX
from scheduler_app.authoring.context import Context
from scheduler_app.authoring.saving import FLOW, TASK, Superseded
from scheduler_app.authoring.triggers import PollTrigger
from scheduler_app.processes import failpoints
from scheduler_app.processes.child_runs import Parent, ask_for_run
from scheduler_app.processes.ended_runs import ended_runs
from scheduler_app.rules import values
from scheduler_app.rules.errors import Conflict, InvalidInput, NotFound
from scheduler_app.transitions.checkpoint import publish, push
from scheduler_app.transitions.exclusive import let_go, take_exclusive
from scheduler_app.worker.items import Place, seen_results
from scheduler_app.worker.report import storable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    import psycopg

    from scheduler_app.authoring.child_runs import Ask, ChildRun
    from scheduler_app.authoring.triggers import RunTrigger
    from scheduler_app.hints.notices import Notices
    from scheduler_app.rules.definition import FlowDefinition
    from scheduler_app.transitions.attempt import Claim
    from scheduler_app.worker.refuse import Delivery
    from scheduler_app.worker.saver import Saver


ARTIFACTS_MAX: Final = 100  # of one attempt
NOWHERE: Final = Place(task_id="", map_index=-1, mapped={})


def build_context(
    delivery: Delivery, claim: Claim, flow: FlowDefinition, services: Services
) -> Context:
    """What the task may know of itself."""
    return Context(
        flow_id=claim.flow_id,
        run_id=claim.run_key,
        task_id=claim.task_id,
        map_index=claim.map_index,
        logical_date=claim.logical_date,
        data_interval_start=claim.data_interval_start,
        data_interval_end=claim.data_interval_end,
        conf=claim.conf,
        params={**flow.params, **claim.conf},
        try_number=claim.try_number,
        resume_index=claim.resume_index,
        run_attempt=claim.run_attempt,
        attempt_id=str(delivery.attempt_id),
        fence=delivery.fence,
        services=services,
        run_type=claim.run_type,
        elapsed_before=timedelta(seconds=claim.elapsed_s),
    )


@dataclass(slots=True, kw_only=True)
class Services:
    """What user code may ask of the database while it runs."""

    saver: Saver
    delivery: Delivery
    claim: Claim
    notices: Notices
    run_id: int
    flow_id: str
    value_bytes_max: int
    # Tasks of transactional groups that it is outside of, each with its group: visible once that succeeded.
    hidden: Mapping[str, str] = field(default_factory=dict)
    hide: Callable[[str], str] = str  # secrets in texts that are shown
    place: Place = NOWHERE  # among the mapped instances of the run
    _results: dict[tuple[str, int], Any] = field(default_factory=dict)
    _published: set[str] = field(default_factory=set)  # keys of artifacts
    _began: float = field(default_factory=time.monotonic)
    _asked: Counter[str] = field(default_factory=Counter)  # runs of other flows, by what is asked

    def idempotency_key(self) -> str:
        """The same for every attempt of the task instance, and for no other, in any installation."""
        installation = UUID(self.delivery.identity.rpartition(":")[2])
        return str(uuid5(installation, str(self.claim.ti_id)))

    def still_mine(self) -> bool:
        """Whether this attempt's result would be accepted now. Raises if the database is away."""
        return self.saver.once(self._is_mine)

    def result(self, task_id: str, map_index: int = -1) -> Any:
        """The result of a task of this run; of a mapped one, unless an index is named, the list of them.

        Raises ``NotFound`` for a task that the run does not have.
        """
        key = (task_id, map_index)
        if map_index < 0 and task_id in self.place.mapped and key not in self._results:
            self._check_visible(task_id)
            self._results[key] = self.saver.once(
                lambda connection: seen_results(
                    connection, run_id=self.run_id, task_ids=[task_id], place=self.place
                )
            ).get(task_id)
        if key not in self._results:
            self._check_visible(task_id)
            self._results |= self.saver.once(
                lambda connection: results_of(
                    connection, run_id=self.run_id, task_ids=[task_id], map_index=map_index
                )
            )
        if key not in self._results:
            message = f"This run has no task {task_id!r} with map index {map_index}."
            raise NotFound(message)
        return self._results[key]

    def checkpoint(self, scope: str, owner: str | None, key: str) -> tuple[bool, Any]:
        """Whether the checkpoint is there, and its value: what this attempt set, or what is stored."""
        waits = self.saver.waiting(scope, owner, key)
        if waits is not None:
            return True, values.decode(waits.value)
        owner_id = {TASK: str(self.delivery.ti_id), FLOW: self.flow_id}.get(scope, owner)
        return self.saver.ask(
            lambda connection: _one(
                connection,
                "SELECT value FROM checkpoint WHERE scope = %s AND owner = %s AND key = %s",
                [scope, owner_id, key],
            )
        )

    def save(self, scope: str, owner: str | None, given: Mapping[str, Any]) -> None:
        """The values are saved within an interval. Raises ``Superseded`` and ``InvalidInput``."""
        self.saver.save(scope, owner, given)

    def flush(self) -> None:
        """What was saved is in the database. Raises ``Superseded``."""
        self.saver.flush()

    def tell_progress(self, done: int, total: int | None, note: str) -> None:
        """The progress is shown within an interval. Raises ``Superseded``."""
        self.saver.tell_progress(done, total, note)

    def push(self, key: str, value: Any) -> None:
        """The value is stored. Raises ``Superseded`` and ``InvalidInput``."""
        encoded = values.encode_result(value, self.value_bytes_max, "pushed value")

        def write(connection: psycopg.Connection[Any]) -> bool:
            is_stored = push(
                connection,
                ti_id=self.delivery.ti_id,
                attempt_id=self.delivery.attempt_id,
                nonce=self.delivery.nonce,
                fence=self.delivery.fence,
                key=key,
                value=encoded,
            )
            if not is_stored:
                self.saver.refuse(connection, f"pushed value: {key}")
            return is_stored

        if not self.saver.ask(write):
            raise Superseded(f"The pushed value {key!r}")

    def publish(self, key: str, kind: str, title: str, body: Any) -> None:
        """The artifact is stored, without secrets. Raises ``Superseded`` and ``InvalidInput``."""
        if key not in self._published and len(self._published) >= ARTIFACTS_MAX:
            message = f"The task has published {ARTIFACTS_MAX} artifacts; it may show no more."
            raise InvalidInput(message, key=key)
        shown = _without_secrets(body, self.hide)

        def write(connection: psycopg.Connection[Any]) -> bool:
            is_stored = publish(
                connection,
                ti_id=self.delivery.ti_id,
                attempt_id=self.delivery.attempt_id,
                nonce=self.delivery.nonce,
                fence=self.delivery.fence,
                key=key,
                kind=kind,
                title=storable(self.hide(title), TITLE_CHARACTERS_MAX),
                body=shown,
            )
            if not is_stored:
                self.saver.refuse(connection, f"artifact: {key}")
            return is_stored

        if not self.saver.ask(write):
            raise Superseded(f"The artifact {key!r}")
        self._published.add(key)

    def take(self, key: str) -> str | None:
        """Who holds the key; ``None`` once this attempt does. Raises ``Superseded``."""
        is_mine, holder = self.saver.ask(
            lambda connection: take_exclusive(
                connection,
                key=key,
                ti_id=self.delivery.ti_id,
                attempt_id=self.delivery.attempt_id,
                nonce=self.delivery.nonce,
            )
        )
        if not is_mine:
            raise Superseded(f"The exclusive key {key!r}")
        return holder

    def let_go(self, key: str) -> None:
        """This attempt does not hold the key any more."""
        self.saver.ask(
            lambda connection: let_go(connection, key=key, attempt_id=self.delivery.attempt_id)
        )

    def pull(
        self, task_id: str, key: str | None, *, map_index: int, include_prior_tries: bool
    ) -> tuple[bool, Any]:
        """Whether there is such a value of a task of this run, and the value; key null: its result."""
        self._check_visible(task_id)
        if map_index < 0 and task_id in self.place.mapped:
            index = self.place.index_of(task_id)
            if index is None:
                return self._pull_all(task_id, key, include_prior_tries=include_prior_tries)
            map_index = index
        return self.saver.ask(
            lambda connection: _one(
                connection,
                _RESULT if key is None else _PUSHED,
                {
                    "run": self.run_id,
                    "task": task_id,
                    "map_index": map_index,
                    "key": key,
                    "prior": include_prior_tries,
                },
            )
        )

    def trigger_flow(self, ask: Ask) -> ChildRun | None:
        """The run is there, once. Raises ``NotFound``, ``InvalidInput``, ``Conflict``, ``Superseded``."""
        parent = Parent(
            flow_id=self.flow_id,
            run_id=self.run_id,
            task_id=self.claim.task_id,
            ti_id=self.delivery.ti_id,
            attempt_id=self.delivery.attempt_id,
            nonce=self.delivery.nonce,
            budget_start=self.claim.budget_start,
            try_number=self.claim.try_number,
            idempotency_key=self.idempotency_key(),
        )
        child, has_moved = self.saver.ask(
            lambda connection: ask_for_run(
                connection,
                ask=ask,
                parent=parent,
                depth_max=settings.TRIGGER_DEPTH_MAX,
                base_url=settings.BASE_URL,
            )
        )
        if child is not None and has_moved:
            topics = ["runs", "home", f"run:{child.id}", f"run:{self.run_id}"]
            self.notices.both(runs=[child.id], topics=topics)
            failpoints.reach("trigger_flow.after_commit")
        return child

    def asked_before(self, key: str) -> int:
        """How often this attempt has asked under this key before; it has once more now."""
        self._asked[key] += 1
        return self._asked[key] - 1

    def look(self, trigger: RunTrigger | PollTrigger) -> Any | None:
        """Its event if it has happened, else ``None``."""
        if isinstance(trigger, PollTrigger):
            return trigger.looked()
        return self.saver.ask(lambda connection: ended_runs(connection, [trigger]).get(0))

    def pause(self, seconds: float) -> None:
        """So much time passes; a signal to stop ends it."""
        time.sleep(seconds)

    def here(self) -> timedelta:
        """For how long this attempt has been executing."""
        return timedelta(seconds=time.monotonic() - self._began)

    def now(self) -> datetime:
        """The present moment by the database's clock, which all go by."""

        def read(connection: psycopg.Connection[Any]) -> datetime:
            with connection.cursor(row_factory=tuple_row) as cursor:
                cursor.execute("SELECT clock_timestamp()")
                row = cursor.fetchone()
            assert row is not None
            now: datetime = row[0]
            return now

        return self.saver.ask(read)

    def _pull_all(
        self, task_id: str, key: str | None, *, include_prior_tries: bool
    ) -> tuple[bool, Any]:
        """What the instances of a mapped task pushed or returned, as a list in their order."""
        given = {"run": self.run_id, "task": task_id, "key": key, "prior": include_prior_tries}

        def read(connection: psycopg.Connection[Any]) -> list[Any]:
            with connection.cursor(row_factory=tuple_row) as cursor:
                cursor.execute(_ALL_RESULTS if key is None else _ALL_PUSHED, given)
                return [values.decode(row[1]) for row in cursor.fetchall()]

        found = self.saver.ask(read)
        return bool(found), found

    def _check_visible(self, task_id: str) -> None:
        group_id = self.hidden.get(task_id)
        if group_id is None:
            return
        visible = self.saver.ask(
            lambda connection: succeeded_groups(connection, run_id=self.run_id)
        )
        if group_id not in visible:
            message = (
                f"What task {task_id!r} made is not visible yet: it counts only once all of its group"
                f" {group_id!r} has succeeded. Read it in the group, in its compensation, or in a task"
                " after the group."
            )
            raise Conflict(message)

    def _is_mine(self, connection: psycopg.Connection[Any]) -> bool:
        with connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(
                "SELECT 1 FROM task_instance WHERE id = %s AND attempt_id = %s"
                " AND claim_nonce = %s AND state = 'running'",
                [self.delivery.ti_id, self.delivery.attempt_id, self.delivery.nonce],
            )
            return cursor.fetchone() is not None


def _without_secrets(body: Any, hide: Callable[[str], str]) -> Any:
    """The body of an artifact as a column takes it: two levels of lists and dicts, and scalars."""
    if isinstance(body, str):
        return storable(hide(body), BYTES_MAX)
    if isinstance(body, list):
        return [_without_secrets(one, hide) for one in body]
    if isinstance(body, dict):
        return {name: _without_secrets(one, hide) for name, one in body.items()}
    return body


# Of the present try alone, unless earlier ones are wanted. Walk task_instance_unique, then
# pushed_value_of_ti, or attempt_of_ti.
_PUSHED: Final = """
SELECT v.value FROM task_instance i JOIN pushed_value v ON v.ti_id = i.id AND v.key = %(key)s
 WHERE i.run_id = %(run)s AND i.task_id = %(task)s AND i.map_index = %(map_index)s
   AND (%(prior)s OR v.try_number = i.try_number)
 ORDER BY v.fence DESC LIMIT 1
"""
_RESULT: Final = """
SELECT p.result FROM task_instance i JOIN attempt p ON p.ti_id = i.id
 WHERE i.run_id = %(run)s AND i.task_id = %(task)s AND i.map_index = %(map_index)s
   AND p.kind = 'task' AND p.is_accepted AND p.outcome = 'success'
   AND (%(prior)s OR (p.id = i.attempt_id AND i.state = 'success'))
 ORDER BY p.fence DESC LIMIT 1
"""


_ALL_PUSHED: Final = """
SELECT DISTINCT ON (i.map_index) i.map_index, v.value
  FROM task_instance i JOIN pushed_value v ON v.ti_id = i.id AND v.key = %(key)s
 WHERE i.run_id = %(run)s AND i.task_id = %(task)s AND i.map_index >= 0
   AND (%(prior)s OR v.try_number = i.try_number)
 ORDER BY i.map_index, v.fence DESC
"""
_ALL_RESULTS: Final = """
SELECT DISTINCT ON (i.map_index) i.map_index, p.result
  FROM task_instance i JOIN attempt p ON p.ti_id = i.id
 WHERE i.run_id = %(run)s AND i.task_id = %(task)s AND i.map_index >= 0
   AND p.kind = 'task' AND p.is_accepted AND p.outcome = 'success' AND p.result IS NOT NULL
   AND (%(prior)s OR (p.id = i.attempt_id AND i.state = 'success'))
 ORDER BY i.map_index, p.fence DESC
"""


def _one(connection: psycopg.Connection[Any], query: LiteralString, given: Any) -> tuple[bool, Any]:
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(query, given)
        row = cursor.fetchone()
        return (False, None) if row is None else (True, values.decode(row[0]))


def succeeded_groups(connection: psycopg.Connection[Any], *, run_id: int) -> frozenset[str]:
    """The transactional groups of the run that have succeeded. Walks ``group_attempt_current``."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT group_id FROM group_attempt"
            " WHERE run_id = %s AND is_current AND state = 'success'",
            [run_id],
        )
        return frozenset(row[0] for row in cursor.fetchall())


def results_of(
    connection: psycopg.Connection[Any],
    *,
    run_id: int,
    task_ids: Iterable[str],
    map_index: int = -1,
) -> dict[tuple[str, int], Any]:
    """The results of these tasks of the run; ``None`` for one that has not succeeded.

    Walks ``task_instance_unique``.
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT i.task_id, i.map_index, p.result FROM task_instance i"
            " LEFT JOIN attempt p ON p.id = i.attempt_id AND i.state = 'success'"
            " WHERE i.run_id = %s AND i.task_id = ANY(%s) AND i.map_index = %s",
            [run_id, list(task_ids), map_index],
        )
        return {(row[0], row[1]): values.decode(row[2]) for row in cursor.fetchall()}
