"""One delivery in a child of the pool, from claim to finish."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

import psycopg
from django.conf import settings
from psycopg.rows import tuple_row

from scheduler_app.authoring import connections, variables
from scheduler_app.processes import failpoints
from scheduler_app.rules import callbacks, mapping, values
from scheduler_app.rules.definition import TaskDefinition, from_dict
from scheduler_app.rules.errors import NotFound
from scheduler_app.rules.states import TaskState
from scheduler_app.transitions.attempt import Claim, Near, claim
from scheduler_app.transitions.attempt_log import log_length
from scheduler_app.transitions.callback import (
    NO_TI,
    CallbackClaim,
    NewCallbacks,
    claim_callback,
)
from scheduler_app.worker import logs, report
from scheduler_app.worker.callback import run_callback
from scheduler_app.worker.child import Child, child
from scheduler_app.worker.context import (
    Services,
    build_context,
    succeeded_groups,
)
from scheduler_app.worker.deferral import CameTo, run_task
from scheduler_app.worker.folder import REPORT, RUNNING
from scheduler_app.worker.guard import TaskStopped
from scheduler_app.worker.items import Place, StoredItems, seen_results
from scheduler_app.worker.known import KnownFlow, known_flow
from scheduler_app.worker.link import GaveUp
from scheduler_app.worker.load import load_in_time, within
from scheduler_app.worker.offspring import end_offspring
from scheduler_app.worker.outcome import HANDED_BACK, REFUSED, REPORTED, UNCLAIMED, Outcome
from scheduler_app.worker.refuse import Delivery, read_facts, record_refusal, refusal_code
from scheduler_app.worker.saver import Saver
from scheduler_app.worker.variables import WorkerVariables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler_app.authoring.call import TaskCall
    from scheduler_app.authoring.flow import Flow
    from scheduler_app.worker.facts import Facts

CLAIM_TRIES: Final = 3  # while nothing stands against the claim any more
NEAR_MAX: Final = 8  # results that a claim may bring along

logger = logging.getLogger(__name__)


def execute_delivery(attempt_id: str, ti_id: int, fence: int, token: int, identity: str) -> Outcome:
    """The attempt was claimed, executed and reported; or refused, and nothing was executed."""
    me = child()
    me.purge()
    delivery = Delivery(
        attempt_id=UUID(attempt_id),
        ti_id=ti_id,
        fence=fence,
        token=token,
        identity=identity,
        nonce=uuid4(),
    )
    me.guard.begin(attempt_id)
    try:
        claimed = me.link.ask(
            lambda connection: _claim(connection, me, delivery), give_up=me.guard.asked_to_stop
        )
        failpoints.reach("worker.after_claim")
    except GaveUp:
        return Outcome(what=UNCLAIMED)
    if claimed is None:
        return Outcome(what=REFUSED)
    return _execute(me, delivery, claimed)


def _claim(
    connection: psycopg.Connection[Any], me: Child, delivery: Delivery
) -> Claim | CallbackClaim | None:
    """The claim; ``None`` when it was refused and the refusal is recorded."""
    here = me.link.identity()
    facts: Facts | None = None
    code = "fenced_other_database" if here != delivery.identity else None
    for _ in range(CLAIM_TRIES):
        if code is not None:
            break
        claimed = _try_claim(connection, me, delivery, facts)
        if claimed is not None:
            return claimed
        facts = read_facts(connection, delivery)
        code = refusal_code(delivery, facts)
    record_refusal(
        connection,
        delivery=delivery,
        code=code or "refused_superseded",
        facts=facts,
        identity=here,
        source=report.signature(me.at.hostname),
        job_id=me.at.job_id,
        hostname=me.at.hostname,
        pid=me.pid,
    )
    if facts is not None and facts.run_id is not None:
        me.notices.changed([f"run:{facts.run_id}", f"ti:{facts.ti_id}", "runs"])
    return None


def _try_claim(
    connection: psycopg.Connection[Any], me: Child, delivery: Delivery, facts: Facts | None
) -> Claim | CallbackClaim | None:
    """The claim, in the form that the delivery or the facts (after a refused one) ask for."""
    given: dict[str, Any] = {
        "attempt_id": delivery.attempt_id,
        "token": delivery.token,
        "fence": delivery.fence,
        "nonce": delivery.nonce,
        "worker_job_id": me.at.job_id,
        "hostname": me.at.hostname,
        "pid": me.pid,
    }
    if delivery.ti_id == NO_TI:
        return claim_callback(connection, **given)
    names = (facts.callback or {}) if facts is not None else {}
    starting = NewCallbacks.of(callbacks.due(names, TaskState.RUNNING), state=TaskState.RUNNING)
    claimed = claim(connection, ti_id=delivery.ti_id, **given, callbacks=starting, near=me.near)
    if claimed is not None and starting:
        me.notices.wake(callbacks=1)
    return claimed


def _execute(me: Child, delivery: Delivery, claimed: Claim | CallbackClaim) -> Outcome:
    attempt_id = str(delivery.attempt_id)
    if isinstance(claimed, Claim):
        me.tell_claimed(attempt_id, claimed, delivery.token)
    began = time.monotonic()
    with me.capture.to(me.at.folder.file(attempt_id, RUNNING)):
        if isinstance(claimed, CallbackClaim):
            came_to = run_callback(me, delivery, claimed)
        else:
            came_to = _run(me, delivery, claimed)
        printed = me.capture.has_printed()
    log_stored = 0
    if printed:
        is_young = time.monotonic() - began < logs.SHIP_INTERVAL_S / 2
        log_stored = _store_log(me, delivery.attempt_id, is_young=is_young)
    if came_to is not None:
        _deliver(me, claimed, came_to, topics=[f"log:{attempt_id}"] if log_stored else [])
    stopped_by = me.guard.stage() if me.guard.stop is not None else None
    me.guard.end(printed=printed, spare=None if printed else me.capture.spare)
    return Outcome(
        what=HANDED_BACK if came_to is None else REPORTED,
        outcome=None if came_to is None else came_to.outcome,
        printed=printed,
        log_stored=log_stored,
        stopped_by=stopped_by,
    )


def _store_log(me: Child, attempt_id: UUID, *, is_young: bool) -> int:
    """How many bytes of the log are stored: all, unless the database is away."""
    tail = logs.Tail()

    def store(connection: psycopg.Connection[Any]) -> None:
        if not is_young:  # the main process has shipped some of it
            tail.offset = log_length(connection, attempt_id=attempt_id)
        logs.store_new(connection, me.at.folder, attempt_id, tail, masks=me.masks)

    try:
        me.link.once(store)
    except psycopg.Error as error:  # the main process ships the rest
        logger.warning("a log waits on disk", extra={"error": str(error).strip()})
    return tail.offset


def _run(me: Child, delivery: Delivery, claimed: Claim) -> report.Report | None:
    """The report of the execution; ``None`` if it was stopped to be handed back.

    What the task saved is in the database, or in the report.
    """
    saver = Saver(
        me,
        delivery,
        interval_s=settings.CHECKPOINT_INTERVAL_S,
        bytes_max=settings.CHECKPOINT_BYTES_MAX,
        kept=settings.CHECKPOINT_SAVES_KEPT,
    )
    me.guard.last_act = saver.hurry
    done = _come_to(me, delivery, claimed, saver)
    saves, progress = saver.end()
    if done is None or not (saves or progress):
        return done
    return replace(done, saves=saves, progress=progress)


def _come_to(me: Child, delivery: Delivery, claimed: Claim, saver: Saver) -> report.Report | None:
    """The report of what the user code came to."""
    ids = {"attempt_id": str(delivery.attempt_id), "nonce": str(delivery.nonce)}
    task: TaskDefinition | None = None
    try:
        flow = load_in_time(
            me, str(delivery.attempt_id), digest=claimed.bundle_digest, flow_id=claimed.flow_id
        )
        known = known_flow(flow)
        task, call = _task_of(known, flow, claimed.task_id)
        came_to = _call(me, delivery, claimed, known, task, call, saver)
        if came_to.wait is not None:
            return report.deferred(claimed, **ids, task=task, wait=came_to.wait)
        if came_to.skipped is not None:
            return report.skipped(claimed, **ids, task=task, reason=me.hidden(came_to.skipped))
        if came_to.again_after_s is not None:
            return report.rescheduled(claimed, **ids, task=task, after_s=came_to.again_after_s)
        return report.success(claimed, **ids, task=task, result=came_to.result)
    except (TaskStopped, GaveUp):
        return _stopped(me, claimed, ids, error=None)
    except BaseException as error:  # noqa: BLE001 - user code may raise anything; all of it is a failure
        if me.guard.stop is not None:  # what it made of the exception that it was stopped with
            return _stopped(me, claimed, ids, error=error)
        if me.guard.is_over_limit:
            end_offspring(me.pid, since=me.guard.began)
        failed = report.failure(claimed, **ids, error=error, task=task or _stored_task(me, claimed))
        failed = report.masked(failed, me.hidden)
        assert failed.error is not None
        me.capture.say(failed.error["traceback"])
        return failed


def _stopped(
    me: Child, claimed: Claim, ids: dict[str, str], *, error: BaseException | None
) -> report.Report | None:
    """The report of code that was told to stop; nothing that it started goes on.

    ``None`` if it shall be executed elsewhere.
    """
    asked = me.guard.stop or {}
    stage = me.guard.stage()
    end_offspring(me.pid, since=me.guard.began)
    if asked.get("hand_back"):
        return None
    why = str(asked.get("why", "it was asked to stop"))
    me.capture.say(f"Stopped: {why}")
    stopped = report.stopped(claimed, **ids, why=why, stage=stage, error=error)
    return report.masked(stopped, me.hidden)


def _task_of(known: KnownFlow, flow: Flow, task_id: str) -> tuple[TaskDefinition, TaskCall]:
    if task_id not in flow.calls:
        message = (
            f"Flow {flow.flow_id!r} has no task {task_id!r} when it is loaded on this host. Its "
            "file makes tasks from something outside it; make that the same on every host."
        )
        raise NotFound(message)
    return known.tasks[task_id], flow.calls[task_id]


def _call(
    me: Child,
    delivery: Delivery,
    claimed: Claim,
    known: KnownFlow,
    task: TaskDefinition,
    call: TaskCall,
    saver: Saver,
) -> CameTo:
    """What the user code came to."""
    hidden = known.hidden_from(claimed.task_id)
    place = Place(task_id=claimed.task_id, map_index=claimed.map_index, mapped=known.mapped)
    services = Services(
        saver=saver,
        hidden=hidden,
        place=place,
        delivery=delivery,
        claim=claimed,
        notices=me.notices,
        run_id=claimed.run_id,
        flow_id=claimed.flow_id,
        value_bytes_max=settings.RESULT_BYTES_MAX,
        hide=me.hidden,
    )
    ctx = build_context(delivery, claimed, known.definition, services)
    needed = known.needed_by(call)
    results = _results(me, claimed, needed, place, hidden)
    items = StoredItems(
        ask=saver.ask,
        run_id=claimed.run_id,
        mapped=place.mapped,
        map_index=claimed.map_index,
        given=claimed.near_items or {},
    )
    own = WorkerVariables(
        me=me,
        delivery=delivery,
        actor=f"task {claimed.flow_id}.{claimed.task_id}",
        flow_id=claimed.flow_id,
        saver=saver,
    )
    with variables.served_by(own), connections.served_by(own):
        came_to = within(
            me,
            str(delivery.attempt_id),
            lambda: run_task(
                call,
                ctx,
                results,
                claimed,
                bytes_max=settings.RESULT_BYTES_MAX,
                items=items,
                checked=_checked_by(task, known),
            ),
            task.timeout_s,
        )
    near = _near(claimed, needed, place, hidden, items)
    me.needs.note(claimed.flow_id, claimed.task_id, near.task_ids if near is not None else ())
    if near is not None and near == me.needed:
        me.near = near  # the last two were siblings: the next one may be another
    else:  # a task of this flow, if anything, which has run here for another run
        needs = me.needs.known()
        me.near = Near(needs=needs) if needs else None
    me.needed = near
    return came_to


def _results(
    me: Child, claimed: Claim, needed: frozenset[str], place: Place, hidden: Mapping[str, str]
) -> Mapping[str, Any]:
    """The results that the arguments need, as this instance sees them."""
    if not needed:
        return {}
    near = claimed.near_results or {}
    if needed <= near.keys() and _are_near(needed, place, hidden):
        return {task_id: values.decode(near[task_id]) for task_id in needed}
    found, succeeded = me.link.ask(
        lambda connection: (
            seen_results(connection, run_id=claimed.run_id, task_ids=needed, place=place),
            # As of a task that has not succeeded, nothing is given of a group that has not.
            succeeded_groups(connection, run_id=claimed.run_id)
            if hidden.keys() & needed
            else frozenset(),
        ),
        give_up=me.guard.asked_to_stop,
    )
    return {
        task_id: found[task_id] if task_id not in hidden or hidden[task_id] in succeeded else None
        for task_id in needed
    }


def _are_near(needed: frozenset[str], place: Place, hidden: Mapping[str, str]) -> bool:
    """Whether a claim can bring these results along."""
    return (
        len(needed) <= NEAR_MAX
        and not hidden.keys() & needed
        and all(place.index_of(task_id) == mapping.SUMMARY for task_id in needed)
    )


def _near(
    claimed: Claim,
    needed: frozenset[str],
    place: Place,
    hidden: Mapping[str, str],
    items: StoredItems,
) -> Near | None:
    """What the next claim should bring along, if it is of a sibling of this instance."""
    task_ids = needed if _are_near(needed, place, hidden) else ()
    item_ids = items.asked if len(items.asked) <= NEAR_MAX else ()
    if not task_ids and not item_ids:
        return None
    return Near(
        run_id=claimed.run_id,
        task_ids=tuple(sorted(task_ids)),
        item_ids=tuple(sorted(item_ids)),
    )


def _checked_by(task: TaskDefinition, known: KnownFlow) -> Callable[[object, Any], Any]:
    """What looks at a result once more, where others map over it; raises ``InvalidInput``."""
    is_mapped = task.task_id in known.mapped

    def checked(result: object, encoded: Any) -> Any:
        if task.task_id not in known.mapped_over:
            return encoded
        limit = task.max_map_length or settings.MAX_MAP_LENGTH
        mapping.check_returned(result, is_mapped=is_mapped, limit=limit, task_id=task.task_id)
        return encoded if is_mapped else mapping.ordered(encoded)

    return checked


def _stored_task(me: Child, claimed: Claim) -> TaskDefinition | None:
    """The task as its version is stored; for the retry of a task whose source did not load."""

    def read(connection: psycopg.Connection[Any]) -> Any:
        with connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(
                "SELECT v.definition FROM flow_version v JOIN run r ON r.version_id = v.id"
                " WHERE r.id = %s",
                [claimed.run_id],
            )
            return cursor.fetchone()

    try:
        row = me.link.ask(read, give_up=me.guard.asked_to_stop)
        return None if row is None else from_dict(row[0]).task(claimed.task_id)
    except (GaveUp, KeyError):
        return None


def _deliver(
    me: Child, claimed: Claim | CallbackClaim, done: report.Report, *, topics: list[str]
) -> None:
    """The report is in the database. While that is away it waits on disk; user code is not run again."""
    failpoints.reach("worker.before_finish")

    def send(connection: psycopg.Connection[Any]) -> int | None:
        return report.send(
            connection, done, source=report.signature(me.at.hostname), job_id=me.at.job_id
        )

    try:
        run_id = me.link.once(send)
    except psycopg.Error as error:
        logger.warning("a report waits on disk", extra={"error": str(error).strip()})
        _spool(me, done)
        run_id = me.link.ask(send, give_up=lambda: False)
        me.at.folder.drop(done.attempt_id, REPORT)
    failpoints.reach("worker.after_finish")
    if run_id is None:
        return
    # The main process tells the pages, of all children at once.
    if done.wait is not None:
        me.notices.deferred(runs=[run_id], topics=topics, by_itself=True)
    elif isinstance(claimed, CallbackClaim):  # moves no run; there is room for another callback
        me.notices.both(runs=[], topics=topics, callbacks=True)
    else:
        has_called = bool(report.due_callbacks(done))
        me.notices.both(runs=[run_id], topics=topics, callbacks=has_called, by_itself=True)


def _spool(me: Child, done: report.Report) -> None:
    try:
        me.at.folder.write(done.attempt_id, REPORT, done.as_json())
    except OSError as error:  # a full disk: what this process holds in memory is all there is
        logger.error("a report could not be spooled", extra={"error": str(error)})
