"""A scheduler without processes: ticks by hand, messages in a list, workers played by the test.

Everything between is real: the rows, the statements, the rules.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from scheduler_app.models import Attempt, Bundle, Flow, FlowVersion, Run, TaskInstance, Trigger
from scheduler_app.rules import callbacks
from scheduler_app.rules.definition import (
    FlowDefinition,
    TaskDefinition,
    digest,
    from_dict,
    to_dict,
)
from scheduler_app.rules.states import AttemptOutcome, RunType, TaskState
from scheduler_app.scheduler.judge import judge_pending
from scheduler_app.scheduler.tick import Outcome, Ticker
from scheduler_app.transitions import attempt, trigger
from scheduler_app.transitions.callback import NewCallbacks
from scheduler_app.transitions.ids import uuid7
from scheduler_app.transitions.run import NewRun, create_run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import psycopg

    from scheduler_app.scheduler.leases import Leases
    from scheduler_app.transitions.attempt import Claim, Message


def chain(*task_ids: str, **options: Any) -> tuple[TaskDefinition, ...]:
    """Tasks one after the other, all with these options."""
    return tuple(
        TaskDefinition(task_id=task_id, upstream=task_ids[i - 1 : i] if i else (), **options)
        for i, task_id in enumerate(task_ids)
    )


class World:
    """Flows, runs and a scheduler that ticks when told to."""

    def __init__(self, connection: psycopg.Connection[Any], leases: Leases) -> None:
        self.connection = connection
        self.leases = leases
        self.ticker = Ticker(leases)
        self.messages: list[Message] = []
        self.queue_slots = {"default": 8}
        self.worker = uuid7()

    def flow(self, flow_id: str, tasks: Sequence[TaskDefinition], **options: Any) -> Flow:
        """A flow with one version of these tasks; its shard is 3."""
        definition = FlowDefinition(flow_id=flow_id, tasks=tuple(tasks), **options)
        now = timezone.now()
        bundle, _ = Bundle.objects.get_or_create(
            digest="0" * 64, defaults={"main_path": "flow.py", "archive": b"", "created_at": now}
        )
        flow = Flow.objects.create(flow_id=flow_id, shard=3, created_at=now, updated_at=now)
        version = FlowVersion.objects.create(
            flow=flow,
            number=1,
            digest=digest(definition, bundle.digest),
            definition=to_dict(definition),
            bundle=bundle,
            created_at=now,
        )
        flow.current_version = version
        flow.save()
        return flow

    def run(self, flow: Flow, run_key: str = "r1", *, conf: Mapping[str, Any] | None = None) -> int:
        """A queued run of the flow."""
        assert flow.current_version is not None
        now = timezone.now()
        with self.connection.transaction():
            run_id = create_run(
                self.connection,
                new=NewRun(
                    flow_id=flow.flow_id,
                    run_key=run_key,
                    shard=flow.shard,
                    run_type=RunType.MANUAL,
                    version_id=flow.current_version.pk,
                    logical_date=now,
                    data_interval_start=now,
                    data_interval_end=now,
                    conf=dict(conf or {}),
                ),
                definition=from_dict(flow.current_version.definition),
            )
        assert run_id is not None
        return run_id

    def tick(self, *run_ids: int) -> Outcome:
        """One tick over these runs; its messages are appended."""
        outcome = self.ticker.tick(
            self.connection,
            terms=self.leases.terms(),
            run_ids=run_ids,
            queue_slots=self.queue_slots,
        )
        self.messages += outcome.messages
        return outcome

    def judge(self) -> set[int]:
        """Pending events are judged; the runs that moved."""
        moved, _ = judge_pending(self.connection, leases=self.leases, terms=self.leases.terms())
        return moved

    def claim_with_callbacks(self, message: Message) -> Claim | None:
        """A delivery of the message claims, as a worker does that has read what its start calls for."""
        names = Attempt.objects.get(pk=message.attempt_id).callback or {}
        calls = callbacks.due(names, TaskState.RUNNING)
        return self.claim(message, callbacks=NewCallbacks.of(calls, state=TaskState.RUNNING))

    def finish_with_callbacks(self, message: Message, *, ok: bool = True) -> None:
        """The claimed delivery reports, with what that calls for."""
        state = TaskState.SUCCESS if ok else TaskState.FAILED
        ti = TaskInstance.objects.get(pk=message.ti_id)
        version = FlowVersion.objects.get(id=ti.run.version_id)
        task = from_dict(version.definition).task(ti.task_id)
        self.finish(
            message,
            ok=ok,
            callbacks=NewCallbacks.of(callbacks.due(task.callbacks, state), state=state),
        )

    def claim(
        self,
        message: Message,
        nonce: uuid.UUID | None = None,
        *,
        callbacks: NewCallbacks | None = None,
    ) -> Claim | None:
        """A delivery of the message claims."""
        return attempt.claim(
            self.connection,
            ti_id=message.ti_id,
            attempt_id=message.attempt_id,
            token=message.lease_token,
            fence=message.fence,
            nonce=nonce or uuid.UUID(int=message.attempt_id.int),
            worker_job_id=self.worker,
            hostname="host-1",
            pid=4711,
            callbacks=callbacks,
        )

    def finish(
        self,
        message: Message,
        *,
        ok: bool = True,
        retry_after_s: float | None = None,
        callbacks: NewCallbacks | None = None,
        result: Any = None,
    ) -> None:
        """The claimed delivery reports."""
        state = TaskState.SUCCESS if ok else TaskState.FAILED
        if retry_after_s is not None:
            state = TaskState.UP_FOR_RETRY
        moved = attempt.finish(
            self.connection,
            ti_id=message.ti_id,
            attempt_id=message.attempt_id,
            nonce=uuid.UUID(int=message.attempt_id.int),
            state=state,
            is_open=retry_after_s is not None,
            outcome=AttemptOutcome.SUCCESS if ok else AttemptOutcome.FAILED,
            retry_after_s=retry_after_s,
            callbacks=callbacks,
            result=result,
        )
        assert moved is not None, "the report was not accepted"

    def defer(self, message: Message, **wait: Any) -> int:
        """The claimed delivery defers; the id of its trigger, a watched one unless told otherwise."""
        assert self.defer_by(self.connection, message, **wait) == message.run_id, "not accepted"
        return Trigger.objects.filter(ti_id=message.ti_id).latest("id").pk

    def defer_by(
        self, connection: psycopg.Connection[Any], message: Message, **wait: Any
    ) -> int | None:
        """The same over a connection of the test's own; the run's id if it was accepted."""
        return trigger.defer(
            connection,
            ti_id=message.ti_id,
            attempt_id=message.attempt_id,
            nonce=uuid.UUID(int=message.attempt_id.int),
            wait=trigger.Wait(
                **{
                    "next_method": "resumed",
                    "next_kwargs": {"n": 1},
                    "kind": "watched",
                    "classpath": "flow:Watched",
                    "kwargs": {},
                    "detail": "Watched()",
                    **wait,
                }
            ),
        )

    def fire(self, trigger_id: int, event: Any = None) -> str:
        """The trigger fires with this event; what that did."""
        (fired,) = trigger.fire(
            self.connection,
            fires=[trigger.Fire(trigger_id=trigger_id, state="fired", payload={"event": event})],
        )
        return fired.what

    def play(
        self,
        run_id: int,
        *,
        failing: Sequence[str] = (),
        results: Mapping[str, Any] | None = None,
        rounds: int = 50,
    ) -> Run:
        """Ticks, claims and finishes until the run ended: see ``serve``."""
        for _ in range(rounds):
            self.tick(run_id)
            self.serve(failing=failing, results=results)
            if not Run.objects.get(pk=run_id).is_active:
                break
        return Run.objects.get(pk=run_id)

    def serve(
        self, *, failing: Sequence[str] = (), results: Mapping[str, Any] | None = None
    ) -> None:
        """A worker claims and finishes every message; tasks in ``failing`` fail.

        ``load[2]`` names one instance there, and in ``results``.
        """
        messages, self.messages = self.messages, []
        for message in messages:
            claim = self.claim(message)
            assert claim is not None
            task_id, one = claim.task_id, f"{claim.task_id}[{claim.map_index}]"
            result = (results or {}).get(task_id)
            self.finish(
                message,
                ok=not {task_id, one} & set(failing),
                result=(results or {}).get(one, result),
            )

    def states(self, run_id: int) -> dict[str, str]:
        """State by task id."""
        return dict(TaskInstance.objects.filter(run_id=run_id).values_list("task_id", "state"))

    def states_by_index(self, run_id: int) -> dict[str, str]:
        """State by task id, with the map index where there is one: ``load[2]``."""
        rows = TaskInstance.objects.filter(run_id=run_id).order_by("task_id", "map_index")
        found = rows.values_list("task_id", "map_index", "state")
        return {t if n < 0 else f"{t}[{n}]": state for t, n, state in found}

    def attempts(self, run_id: int) -> list[Attempt]:
        """Attempts of the run, oldest first."""
        return list(Attempt.objects.filter(run_id=run_id).order_by("fence"))


def with_options(tasks: Sequence[TaskDefinition], **options: Any) -> tuple[TaskDefinition, ...]:
    """The tasks with these options changed."""
    return tuple(replace(task, **options) for task in tasks)
