"""A task asks for a run of another flow: created once, or found again, in one transaction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import dict_row

from scheduler_app.authoring.child_runs import ChildRun, IfExists, RunExists
from scheduler_app.authoring.saving import Superseded
from scheduler_app.processes import failpoints
from scheduler_app.processes.new_runs import asked_run
from scheduler_app.rules import clear, pages
from scheduler_app.rules.definition import from_dict
from scheduler_app.rules.errors import Conflict, NotAllowed
from scheduler_app.rules.run_keys import triggered_run_key
from scheduler_app.rules.states import RUN_TERMINAL, RunState
from scheduler_app.transitions import run_retry
from scheduler_app.transitions import triggered_run as moves
from scheduler_app.transitions.audit import record_audit
from scheduler_app.transitions.run import create_run, lock_run
from scheduler_app.transitions.variable import is_running

if TYPE_CHECKING:
    from uuid import UUID

    import psycopg

    from scheduler_app.authoring.child_runs import Ask
    from scheduler_app.processes.new_runs import Asked

TRIES: Final = 3  # while others create the same run


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """The attempt that asks."""

    flow_id: str
    run_id: int
    task_id: str
    ti_id: int
    attempt_id: UUID
    nonce: UUID
    budget_start: int
    try_number: int
    idempotency_key: str

    @property
    def actor(self) -> str:
        """How it signs what it did."""
        return f"task {self.flow_id}.{self.task_id}"


def ask_for_run(
    connection: psycopg.Connection[Any],
    *,
    ask: Ask,
    parent: Parent,
    depth_max: int,
    base_url: str,
) -> tuple[ChildRun | None, bool]:
    """The run that was asked for, and whether it moved just now; none where it shall be skipped.

    Asked again in one execution of the task (from its beginning or its last clear), it is the run
    that was found or made before, unless that has failed since an earlier try. Raises ``NotFound``,
    ``InvalidInput``, ``Conflict``, ``NotAllowed`` and ``Superseded``; then nothing changed.
    """
    for _ in range(TRIES):
        with connection.transaction():
            known = moves.find_link(
                connection, ti_id=parent.ti_id, budget_start=parent.budget_start, key=ask.key
            )
            if known is not None and _counts(known, parent):
                if not _is_mine(connection, parent):
                    raise Superseded(f"A run of flow {ask.flow_id!r}")
                found = _child(known.run_id, known.flow_id, known.run_key, known.state, base_url)
                return replace(found, how="joined"), False
            made = _make(connection, ask, parent, known, depth_max=depth_max, base_url=base_url)
            if made is not None:
                failpoints.reach("trigger_flow.before_commit")
                return made
    message = f"flow {ask.flow_id!r}: its runs change under this task's hands; try again"
    raise Conflict(message)


def _counts(known: moves.Found, parent: Parent) -> bool:
    """Whether the run is still the one that is asked for: it is of this try, or has not failed."""
    return (
        known.try_number == parent.try_number or known.state != RunState.FAILED or known.will_retry
    )


def _is_mine(connection: psycopg.Connection[Any], parent: Parent) -> bool:
    return is_running(
        connection, ti_id=parent.ti_id, attempt_id=parent.attempt_id, nonce=parent.nonce
    )


def _make(
    connection: psycopg.Connection[Any],
    ask: Ask,
    parent: Parent,
    known: moves.Found | None,
    *,
    depth_max: int,
    base_url: str,
) -> tuple[ChildRun | None, bool] | None:
    """What the ask came to; ``None`` where somebody else made the run meanwhile."""
    depth = moves.depth_of(connection, run_id=parent.run_id) + 1
    if depth > depth_max:
        _refuse_endless(connection, ask, parent, depth_max)
    run_key = ask.run_id or triggered_run_key(
        parent.idempotency_key,
        budget_start=parent.budget_start,
        key=ask.key,
        try_number=parent.try_number,
    )
    asked = asked_run(
        connection,
        flow_id=ask.flow_id,
        conf=ask.conf,
        logical_date=ask.logical_date,
        run_id=run_key,
        note=ask.note,
        actor=parent.actor,
    )
    if ask.fail_when_paused and asked.is_paused:
        message = (
            f"Flow {ask.flow_id!r} is paused, and this task says fail_when_paused=True. Unpause it,"
            " or leave that out: a run that is asked for runs in a paused flow too."
        )
        raise NotAllowed(message)
    there = moves.run_by_key(connection, flow_id=ask.flow_id, run_key=run_key)
    if there is None:
        run_id = create_run(connection, new=asked.new, definition=asked.definition)
        if run_id is None:
            return None
        how, state = "created", str(RunState.QUEUED)
    else:
        run_id, state = there
        found = _how_with(ask, known, run_id, state)
        if found is None:
            return None, False
        how = found
    locked = lock_run(connection, run_id=run_id) if how == "reset" else None
    # From here until the commit the attempt stays the current one.
    if not _is_mine(connection, parent):
        raise Superseded(f"A run of flow {ask.flow_id!r}")
    if locked is not None:
        _begin_anew(connection, locked, parent)
        state = str(RunState.QUEUED)
    if not moves.keep_link(
        connection,
        new=moves.NewLink(
            parent_run_id=parent.run_id,
            ti_id=parent.ti_id,
            attempt_id=parent.attempt_id,
            budget_start=parent.budget_start,
            try_number=parent.try_number,
            key=ask.key,
            run_id=run_id,
            how=how,
            depth=depth,
            waits=ask.waits,
            on_stop=ask.on_stop,
        ),
    ):
        raise Superseded(f"A run of flow {ask.flow_id!r}")
    if how == "created":
        _audit(connection, ask, asked, parent, run_id)
    child = _child(run_id, ask.flow_id, run_key, state, base_url)
    return replace(child, how=how, remark=_remark(ask, asked)), how != "joined"


def _how_with(ask: Ask, known: moves.Found | None, run_id: int, state: str) -> str | None:
    """What becomes of a run that is there already; ``None``: the task is skipped. ``RunExists``."""
    if ask.run_id is None:
        return "joined"  # its id is this very ask's
    if known is not None and known.run_id == run_id:
        return "reset"  # it is the task's own, and failed in an earlier try
    match ask.if_exists:
        case IfExists.SKIP:
            return None
        case IfExists.JOIN:
            return "joined"
        case IfExists.RESET:
            return "reset"
    message = (
        f"Flow {ask.flow_id!r} has a run {ask.run_id!r} already, which is {state}. Give another run_id,"
        " or say what to do then: if_exists='join', 'skip' or 'reset'."
    )
    raise RunExists(message, field="run_id")


def _child(run_id: int, flow_id: str, run_key: str, state: str, base_url: str) -> ChildRun:
    return ChildRun(
        id=run_id,
        flow_id=flow_id,
        run_id=run_key,
        state=state,
        how="created",
        url=pages.run_page(base_url, run_id),
    )


def _remark(ask: Ask, asked: Asked) -> str:
    if asked.is_frozen:
        return f"Flow {ask.flow_id!r} is frozen: its run begins when that is thawed."
    if asked.is_paused:
        return f"Flow {ask.flow_id!r} is paused: what is asked for runs all the same."
    return ""


def _refuse_endless(
    connection: psycopg.Connection[Any], ask: Ask, parent: Parent, depth_max: int
) -> None:
    above = moves.chain_of(connection, run_id=parent.run_id)
    chain = " → ".join([*reversed(above), ask.flow_id])
    is_longer = "… → " if depth_max + 1 > len(above) else ""
    round_about = "Its flows trigger each other without an end" if ask.flow_id in above else "That"
    message = (
        f"Run {depth_max + 1} in a chain in which each run triggers the next is refused: {is_longer}"
        f"{chain}. {round_about}: let one of them stop, by a branch or by what its conf counts. Where"
        f" so long a chain is meant, raise DAYLIGHT_TRIGGER_DEPTH_MAX ({depth_max})."
    )
    raise NotAllowed(message)


def _begin_anew(connection: psycopg.Connection[Any], run: dict[str, Any], parent: Parent) -> None:
    """All of the run begins anew in its own version, whatever it has come to."""
    if run["is_frozen"]:
        message = f"Run {run['run_key']} of flow {run['flow_id']!r} is frozen: thaw it first."
        raise NotAllowed(message)
    if run["filter_code"] is not None:
        message = (
            f"Run {run['run_key']} of flow {run['flow_id']!r} is set aside; it cannot begin anew."
        )
        raise NotAllowed(message)
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute("SELECT definition FROM flow_version WHERE id = %s", [run["version_id"]])
        row = cursor.fetchone()
    assert row is not None, "a version outlives its runs"
    definition = from_dict(row["definition"])
    options = clear.Options(keep_checkpoints=False)
    selection, rows = run_retry.select_for_retry(
        connection, run_id=run["id"], definition=definition, options=options
    )
    if not selection.included:
        if RunState(run["state"]) in RUN_TERMINAL:
            message = f"Run {run['run_key']} of flow {run['flow_id']!r} has nothing to run again."
            raise NotAllowed(message)
        return  # it has not begun
    run_retry.begin_run_attempt(
        connection,
        run=run,
        definition=definition,
        options=options,
        selection=selection,
        rows=rows,
        actor=parent.actor,
        reason=f"{parent.actor} asked for it again",
        cause="trigger",
    )


def _audit(
    connection: psycopg.Connection[Any], ask: Ask, asked: Asked, parent: Parent, run_id: int
) -> None:
    record_audit(
        connection,
        actor=parent.actor,
        action="trigger",
        object_kind="run",
        object_id=str(run_id),
        flow_id=ask.flow_id,
        reason=ask.note,
        after={
            "run_id": asked.new.run_key,
            "conf": dict(ask.conf),
            "triggered_by": {
                "run": parent.run_id,
                "ti": parent.ti_id,
                "attempt_id": str(parent.attempt_id),
            },
        },
    )
