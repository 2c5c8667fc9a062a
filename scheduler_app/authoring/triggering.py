"""A task that triggers a run of another flow, and waits for its end where that is wanted."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from scheduler_app.authoring.child_runs import (
    ChildRunFailed,
    IfExists,
    OnStop,
    checked_date,
    checked_flow_id,
    one_of,
    plain_conf,
)
from scheduler_app.authoring.faults import fault, refuse
from scheduler_app.authoring.polling import Mode, ask, softened
from scheduler_app.authoring.sensors import RUN_ENDS, Waiting
from scheduler_app.authoring.sources import Part
from scheduler_app.authoring.template import Template
from scheduler_app.authoring.wiring import Step, leaves_in
from scheduler_app.rules.definition import RUN_ID_RULE
from scheduler_app.rules.errors import InvalidInput
from scheduler_app.rules.run_keys import check_run_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from scheduler_app.authoring.building import Building
    from scheduler_app.authoring.context import Context
    from scheduler_app.authoring.faults import Fault
    from scheduler_app.authoring.flow import Flow

KEY = ""  # the task's one run


class TriggerFlow(Waiting):
    """Triggers one run of a flow; with ``wait`` it ends when that does, and fails unless as wanted.

    The run is made once in an execution of the task, whatever is lost or tried again; a later try
    joins it, or makes another one where it has failed. The result has ``flow_id``, ``run_id`` and
    ``state``. See ``Context.trigger_flow`` for what the arguments mean.
    """

    flow_id: str
    conf: Mapping[str, Any] | None = None
    logical_date: datetime | str | None = None
    run_id: str | None = None
    note: str = ""
    wait: bool = False
    states: Sequence[str] = ("success",)
    if_exists: str = IfExists.FAIL
    fail_when_paused: bool = False
    on_stop: str = OnStop.LEAVE
    poll_interval: timedelta = timedelta(seconds=10)

    def usual_task_id(self) -> str:
        """``trigger_`` and the flow."""
        flow_id = getattr(self, "flow_id", None)
        return f"trigger_{flow_id}" if isinstance(flow_id, str) else super().usual_task_id()

    def execute(self, ctx: Context) -> Any:
        """The run is there; where that is wanted, it has ended."""
        how = self.polling()
        child = ctx.trigger_flow(
            self.flow_id,
            conf=self.conf,
            logical_date=checked_date(self.logical_date),
            run_id=self.run_id,
            note=self.note,
            key=KEY,
            if_exists=self.if_exists,
            fail_when_paused=self.fail_when_paused,
            on_stop=self.on_stop,
            waits=self.wait,
        )
        if not self.wait:
            return {"flow_id": child.flow_id, "run_id": child.run_id, "state": child.state}
        if how.mode is Mode.DEFER:
            self.defer(
                trigger=child.trigger(),
                method_name="came",
                kwargs={"url": child.url},
                timeout=how.give_up_after,
            )
        event = ask(ctx, lambda: ctx.services.look(child.trigger()), how)
        return self.came(event, None, child.url)

    def came(self, event: Any, error: Exception | None, url: str) -> Any:
        """How the run ended; fails unless that is wanted."""
        if error is not None:
            raise softened(error, self.polling())
        if event["state"] not in self.states:
            why = f": {event['reason'].rstrip('.')}" if event.get("reason") else ""
            message = (
                f"Run {event['run_id']} of flow {self.flow_id!r}, which this task triggered, ended as"
                f" {event['state']}{why}.{f' See {url}' if url else ''}"
            )
            raise softened(ChildRunFailed(message), self.polling())
        return {"flow_id": self.flow_id, "run_id": event["run_id"], "state": event["state"]}

    def faults(self, flow: Building) -> list[Fault]:
        """What is wrong with the instance: as of all that wait, and with what it asks for."""
        found = super().faults(flow)
        if found:
            return found
        checks: dict[str, Callable[[Any], object]] = {
            "flow_id": checked_flow_id,
            "if_exists": lambda value: one_of(IfExists, "if_exists", value),
            "on_stop": lambda value: one_of(OnStop, "on_stop", value),
            "conf": _checked_conf,
            "states": _checked_states,
            "logical_date": checked_date,
            "run_id": _checked_run_id,
            "wait": lambda value: _checked_flag("wait", value),
            "fail_when_paused": lambda value: _checked_flag("fail_when_paused", value),
        }
        for name, check in checks.items():
            value = getattr(self, name)
            if isinstance(value, (Step, Template, Part)):
                continue
            try:
                check(value)
            except InvalidInput as wrong:
                said, _, remedy = str(wrong).partition(": ")
                subject = f"Task {self.task_id!r} has {said}."
                found.append(fault(self.call.place, subject, f"{remedy[:1].upper()}{remedy[1:]}"))
        return found


def _checked_conf(value: Any) -> None:
    if value is not None and not (
        isinstance(value, dict) and all(isinstance(key, str) for key in value)
    ):
        raise InvalidInput(f"conf={value!r:.80}: give a dict from names to values, or a result.")
    if value is not None and next(leaves_in(value), None) is None:
        try:
            plain_conf(value)
        except InvalidInput as wrong:
            raise InvalidInput(f"conf={value!r:.80}: {wrong}") from None


def _checked_run_id(value: Any) -> None:
    if value is None:
        return
    try:
        check_run_key(value)
    except InvalidInput:
        raise InvalidInput(f"run_id={value!r:.80}: give run_id {RUN_ID_RULE}.") from None


def _checked_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise InvalidInput(f"{name}={value!r:.80}: give {name} True or False.")


def _checked_states(value: Any) -> None:
    known = sorted(RUN_ENDS)
    if isinstance(value, str) or not set(value) <= set(known):
        raise InvalidInput(f"states={value!r:.80}: give a list of {' and '.join(known)}.")


def trigger_flow(
    flow: Flow | str,
    *,
    conf: Mapping[str, Any] | None = None,
    logical_date: datetime | str | None = None,
    run_id: str | None = None,
    wait: bool = False,
    **options: Any,
) -> TriggerFlow:
    """A task of the flow that is being built: it triggers a run of the other flow, and may wait for it.

    ``trigger_flow("load", conf={"day": Template("{ds}")}, wait=True)``. Beside these it takes note,
    states, if_exists ("fail", "join", "skip", "reset"), fail_when_paused, on_stop ("leave",
    "terminate"), mode, poll_interval, give_up_after, soft_fail, and the options of ``@task``. Its id
    is ``trigger_`` and the flow, unless ``task_id`` is given.
    """
    try:
        flow_id = checked_flow_id(flow)
    except InvalidInput as wrong:
        said, _, remedy = str(wrong).partition(": ")
        raise refuse(f"trigger_flow: {said}.", f"{remedy[:1].upper()}{remedy[1:]}") from None
    return TriggerFlow(
        flow_id=flow_id, conf=conf, logical_date=logical_date, run_id=run_id, wait=wait, **options
    )
