"""A callback in a child of the pool: its flow is loaded, the context is built, it is called once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings

from scheduler_app.authoring import callbacks, connections, notifiers, variables
from scheduler_app.authoring.callback_context import (
    RunPicture,
    TaskInstancePicture,
    context_of,
    exception_of,
)
from scheduler_app.couriers.limits import Limits
from scheduler_app.couriers.secrets import Secrets, of_variables
from scheduler_app.couriers.send import send_patiently
from scheduler_app.rules import pages
from scheduler_app.rules.callbacks import CallbackOn
from scheduler_app.rules.errors import NotFound
from scheduler_app.rules.states import AttemptOutcome, AttemptState
from scheduler_app.rules.stopping import explain
from scheduler_app.transitions.callback import NO_TI
from scheduler_app.worker import report
from scheduler_app.worker.context import results_of
from scheduler_app.worker.guard import TaskStopped
from scheduler_app.worker.link import GaveUp
from scheduler_app.worker.load import load_in_time, within
from scheduler_app.worker.offspring import end_offspring
from scheduler_app.worker.variables import WorkerVariables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler_app.authoring.flow import Flow
    from scheduler_app.authoring.letters import Letter
    from scheduler_app.transitions.callback import CallbackClaim
    from scheduler_app.worker.child import Child
    from scheduler_app.worker.refuse import Delivery


def run_callback(me: Child, delivery: Delivery, claimed: CallbackClaim) -> report.Report | None:
    """What the call came to; ``None`` if it was stopped to be handed back.

    Nothing that happens here touches what the callback is about.
    """
    attempt_id = str(delivery.attempt_id)
    try:
        flow = load_in_time(me, attempt_id, digest=claimed.bundle_digest, flow_id=claimed.flow_id)
        callback = _callable_of(flow, claimed)
        context = _context(me, flow, claimed)
        own = WorkerVariables(
            me=me, delivery=delivery, actor=_name(claimed), flow_id=claimed.flow_id
        )
        with variables.served_by(own), connections.served_by(own):
            within(
                me,
                attempt_id,
                lambda: _call(me, callback, context),
                settings.CALLBACK_TIMEOUT_S,
            )
    except (TaskStopped, GaveUp):
        asked = me.guard.stop or {}
        if asked.get("hand_back"):
            return None
        why = str(asked.get("why", "it was asked to stop"))
        stage = me.guard.stage()
        end_offspring(me.pid, since=me.guard.began)
        me.capture.say(f"Stopped: {why}")
        return _report(delivery, AttemptOutcome.TERMINATED, reason=explain(why, stage))
    except BaseException as error:  # noqa: BLE001 - user code may raise anything; all of it is a failure
        described = report.describe(error)
        reason = f"{described['type']}: {described['message']}"[: report.MESSAGE_MAX]
        failed = _report(delivery, AttemptOutcome.FAILED, reason=reason, error=described)
        failed = report.masked(failed, me.hidden)
        assert failed.error is not None
        me.capture.say(failed.error["traceback"])
        return failed
    return _report(delivery, AttemptOutcome.SUCCESS)


def _call(me: Child, callback: callbacks.Callback, context: dict[str, Any]) -> None:
    """It was called; what notifiers in it have to tell went out from here."""
    secrets = Secrets(of_variables(me.link.once))
    for value in settings.NOTIFIER_SECRETS.values():
        me.masks.add(value)

    def courier(notifier: Mapping[str, Any], letter: Letter) -> None:
        send_patiently(
            notifier,
            letter,
            secrets=secrets,
            limits=Limits.of_installation(),
            say=me.capture.say,
        )

    with notifiers.sent_by(courier):
        callbacks.call(callback, context)


def _report(
    delivery: Delivery,
    outcome: AttemptOutcome,
    *,
    reason: str | None = None,
    error: dict[str, Any] | None = None,
) -> report.Report:
    return report.Report(
        ti_id=NO_TI,
        attempt_id=str(delivery.attempt_id),
        nonce=str(delivery.nonce),
        state=AttemptState.ENDED,
        is_open=False,
        outcome=outcome,
        reason=reason,
        error=error,
    )


def _name(claimed: CallbackClaim) -> str:
    """How it signs what it writes."""
    of = claimed.flow_id if claimed.task_id is None else f"{claimed.flow_id}.{claimed.task_id}"
    return f"{str(claimed.callback['on']).removeprefix('on_')} callback of {of}"


def _callable_of(flow: Flow, claimed: CallbackClaim) -> callbacks.Callback:
    on = CallbackOn(claimed.callback["on"])
    index: int = claimed.callback["index"]
    found: tuple[callbacks.Callback, ...] = ()
    group_id = claimed.callback.get("group")
    if group_id is not None:
        found = flow.group_callbacks.get(group_id, {}).get(on, ())
    elif claimed.task_id is None:
        found = flow.run_callbacks.get(on, ())
    elif claimed.task_id in flow.calls:
        found = flow.calls[claimed.task_id].callbacks().get(on, ())
    if index >= len(found):
        owner = f"task {claimed.task_id!r}" if claimed.task_id else "the flow itself"
        owner = f"group {group_id!r}" if group_id is not None else owner
        message = (
            f"Flow {flow.flow_id!r} has no {on}_callback number {index + 1} at {owner} when it is"
            " loaded on this host. Its file makes it from something outside; make that the same on"
            " every host."
        )
        raise NotFound(message)
    return found[index]


def _context(me: Child, flow: Flow, claimed: CallbackClaim) -> dict[str, Any]:
    said = claimed.callback
    is_of_run = claimed.task_id is None
    group_id = said.get("group")
    run = RunPicture(
        flow_id=claimed.flow_id,
        run_id=claimed.run_key,
        run_type=claimed.run_type,
        state=said["state"] if is_of_run and group_id is None else claimed.run_state,
        run_attempt=claimed.run_attempt,
        logical_date=claimed.logical_date,
        data_interval_start=claimed.data_interval_start,
        data_interval_end=claimed.data_interval_end,
        conf=claimed.conf,
        note=claimed.note,
        queued_at=claimed.run_queued_at,
        start_date=claimed.run_started_at,
        end_date=claimed.run_ended_at,
    )
    reason = said["reason"] or claimed.outcome_reason
    is_bad = said["on"] in (CallbackOn.FAILURE, CallbackOn.RETRY)
    return context_of(
        on=said["on"],
        run=run,
        ti=None if is_of_run else _ti(me, claimed),
        exception=exception_of(claimed.error, reason) if is_bad else None,
        reason=reason,
        params={**flow.definition().params, **claimed.conf},
        group_id=group_id,
        key=claimed.callback_key,
        url=_page(claimed),
    )


def _page(claimed: CallbackClaim) -> str:
    if claimed.ti_id is None:
        return pages.run_page(settings.BASE_URL, claimed.run_id)
    return pages.task_instance_page(settings.BASE_URL, claimed.ti_id)


def _ti(me: Child, claimed: CallbackClaim) -> TaskInstancePicture:
    assert claimed.task_id is not None, "a callback of a run has no task"

    def result_of(task_id: str, map_index: int) -> Any:
        found = me.link.once(
            lambda connection: results_of(
                connection, run_id=claimed.run_id, task_ids=[task_id], map_index=map_index
            )
        )
        return found.get((task_id, map_index))

    return TaskInstancePicture(
        flow_id=claimed.flow_id,
        run_id=claimed.run_key,
        task_id=claimed.task_id,
        map_index=-1 if claimed.map_index is None else claimed.map_index,
        state=claimed.callback["state"],
        try_number=claimed.try_number or 0,
        max_tries=claimed.max_tries or 0,
        attempt_id=None if claimed.subject_id is None else str(claimed.subject_id),
        queue=claimed.queue,
        pool=claimed.pool or "",
        priority=claimed.priority or 0,
        hostname=claimed.hostname,
        pid=claimed.pid,
        start_date=claimed.started_at,
        end_date=claimed.ended_at,
        result_of=result_of,
        log_url=_page(claimed),
    )
