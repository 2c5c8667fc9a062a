"""A world whose database is real, and whose workers and schedulers decide by the product's own code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from django.utils import timezone
from psycopg.rows import dict_row

from scheduler_app.models import Bundle, Flow, FlowVersion, Lease, Pool
from scheduler_app.rules.definition import FlowDefinition, digest, to_dict
from scheduler_app.rules.states import RunType
from scheduler_app.scheduler import judge
from scheduler_app.transitions.run import NewRun, create_run
from scheduler_app.worker import refuse, report
from tests import emptying
from tests.integration.simulation.postgres import HOSTNAME, SHARD, PostgresDatabase, wait_of
from tests.simulation.decisions import FLOW_ID
from tests.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler_app.rules.reconcile import Verdict
    from tests.integration.simulation.clock import Clock
    from tests.simulation.rows import Attempt, ExecutorEvent, TaskInstance
    from tests.simulation.state import Child, Report, Scheduler, Setup

# Rows of the installation, which no world knows of.
KEPT_TABLES: Final = emptying.KEPT_TABLES | {"counter", "installation"}


class PostgresWorld(World):
    """The same actions; what is read and written for them goes through the product."""

    db: PostgresDatabase

    def __init__(self, setup: Setup, clock: Clock) -> None:
        clock.reset()
        _make_rows(setup, clock)
        super().__init__(setup, PostgresDatabase(clock, setup.size()))

    def _verdict(self, event: ExecutorEvent, p: Attempt | None, ti: TaskInstance | None) -> Verdict:
        del p, ti
        with self.db.connection.cursor(row_factory=dict_row) as cursor:
            cursor.execute(
                judge._FACTS + " AND e.id = %(event)s", {"event": event.id, "dead_after_s": 20.0}
            )
            row = cursor.fetchone()
        assert row is not None
        return judge._verdict(row)

    def _write_judge(self, s: Scheduler, event: ExecutorEvent, r: int) -> None:
        if not self._begin(s):
            return
        if self.may_abort and r >> 16 & 15 == 0:
            self.db.rollback()
            return
        _, ti = self.db.facts(event.attempt_id)
        seen = {"event_id": event.id, "ti_id": None if ti is None else ti.id + 1}
        judge._judge(self.db.connection, seen, {})
        self.db.commit()

    def _refuse(self, child: Child) -> bool:
        message = child.message
        delivery = refuse.Delivery(
            attempt_id=UUID(int=message.attempt_id),
            ti_id=message.ti_id + 1,
            fence=message.fence,
            token=message.token,
            identity="",
            nonce=UUID(int=child.nonce),
        )
        facts = refuse.read_facts(self.db.connection, delivery)
        code = refuse.refusal_code(delivery, facts)
        if code is None:
            return False
        refuse.record_refusal(
            self.db.connection,
            delivery=delivery,
            code=code,
            facts=facts,
            identity="",
            source="simulated",
            job_id=UUID(int=child.worker.job),
            hostname=HOSTNAME,
            pid=child.pid,
        )
        self.db.look()
        return True

    def send(self, one: Report) -> None:
        wait = None if one.wait is None else wait_of(one.wait)
        report.send(
            self.db.connection,
            report.Report(
                ti_id=one.ti_id + 1,
                attempt_id=str(UUID(int=one.attempt_id)),
                nonce=str(UUID(int=one.nonce)),
                state=one.state,
                is_open=one.delay_s is not None,
                outcome=one.outcome,
                retry_after_s=one.delay_s,
                wait=None if wait is None else {n: getattr(wait, n) for n in wait.__slots__},
            ),
            source="simulated",
            job_id=UUID(int=0),
        )
        self.db.look()


def state_of(world: World) -> dict[str, Any]:
    """Everything that two worlds must agree on."""
    db = world.db
    return {
        "clock": (db.now, db.started_at),
        "lease": db.lease.values(),
        "run": db.run.values(),
        "task_instance": [ti.values() for ti in db.tis],
        "attempt": {p.id: p.values() for p in db.attempts.values()},
        "trigger": [g.values() for g in db.triggers],
        "external_event": [e.values() for e in db.external],
        # Those of one statement have no order among them.
        "executor_event": sorted(_told(db.events)),
        "job": {job.id: job.values() for job in db.jobs.values()},
        "memory": (
            sorted((m.attempt_id, m.ti_id) for m in world.bag),
            [(s.boot, s.token, s.stalled is not None) for s in world.schedulers],
            [(c.nonce, c.phase, c.is_spooled, c.is_unwanted) for c in world.children],
            [[(e.attempt_id, e.kind) for e in worker.exits] for worker in world.workers],
            sorted(fire.trigger_id for fire in world.fires),
        ),
    }


def _told(events: list[ExecutorEvent]) -> Iterator[tuple[str, ...]]:
    for event in events:
        columns = (event.attempt_id, event.kind, event.verdict, event.code, event.filter_code)
        yield (f"{event.received_at:.6f}", *map(str, columns))


def _make_rows(setup: Setup, clock: Clock) -> None:
    emptying.empty_tables(kept=KEPT_TABLES)
    now = timezone.now()
    Lease.objects.create(shard=SHARD, token=0)
    Pool.objects.create(name="default", slots=setup.slots)
    bundle = Bundle.objects.create(digest="0" * 64, main_path="f.py", archive=b"", created_at=now)
    flow = Flow.objects.create(flow_id=FLOW_ID, shard=SHARD, created_at=now, updated_at=now)
    definition = FlowDefinition(flow_id=FLOW_ID, tasks=setup.tasks)
    version = FlowVersion.objects.create(
        flow=flow,
        number=1,
        digest=digest(definition, bundle.digest),
        definition=to_dict(definition),
        bundle=bundle,
        created_at=now,
    )
    run_id = create_run(
        clock.connection,
        new=NewRun(
            flow_id=FLOW_ID,
            run_key="simulated",
            shard=SHARD,
            run_type=RunType.MANUAL,
            version_id=version.pk,
            logical_date=now,
            data_interval_start=now,
            data_interval_end=now,
            conf={},
        ),
        definition=definition,
    )
    assert run_id == 1, "identities start again with each world"
