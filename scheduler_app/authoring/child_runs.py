"""Asking for a run of another flow from inside a task: what is asked, and what came of it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from uuid import UUID

from scheduler_app.authoring.triggers import PollTrigger, RunTrigger
from scheduler_app.rules import values
from scheduler_app.rules.definition import FLOW_OR_TASK_ID, ID_RULE
from scheduler_app.rules.errors import Conflict, InvalidInput
from scheduler_app.rules.run_keys import check_run_key

if TYPE_CHECKING:
    from scheduler_app.authoring.flow import Flow

KEY_CHARACTERS_MAX: Final = 250
CONF_BYTES_MAX: Final = 1024 * 1024
KindT = TypeVar("KindT", bound=StrEnum)


class IfExists(StrEnum):
    """What is done where the flow has a run of the wanted ``run_id`` already."""

    FAIL = "fail"
    JOIN = "join"  # that run is taken for the one that was asked for
    SKIP = "skip"  # the task is skipped
    RESET = "reset"  # all of that run begins anew


class OnStop(StrEnum):
    """What becomes of a run that still goes on when the task that asked for it ended otherwise.

    By terminate, mark, clear or failure: a success of the task leaves its run alone in any case.
    """

    LEAVE = "leave"
    TERMINATE = "terminate"


class RunExists(Conflict):
    """The flow has a run of this id, and nobody said what to do then."""


class ChildRunFailed(Exception):
    """The run that the task triggered and waited for did not end as wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A run of a flow, as a task asks for it. ``key`` tells apart what one task asks for."""

    flow_id: str
    key: str
    conf: Mapping[str, Any]  # JSON values
    logical_date: datetime | None = None
    run_id: str | None = None
    note: str = ""
    if_exists: IfExists = IfExists.FAIL
    fail_when_paused: bool = False
    on_stop: OnStop = OnStop.LEAVE
    waits: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildRun:
    """The run that a task asked for. ``id`` is its number, ``run_id`` its text within the flow."""

    id: int
    flow_id: str
    run_id: str
    state: str
    how: str  # created, joined, reset
    url: str = ""  # of its page; empty without DAYLIGHT_BASE_URL
    remark: str = ""  # what the author should know of it: its flow is paused, frozen

    def trigger(self) -> RunTrigger:
        """What a task defers to that waits for the end of the run."""
        return RunTrigger(self.flow_id, run_id=self.run_id)


class ChildRunServices(Protocol):
    """What the worker does for a task that asks for runs and looks at them."""

    def trigger_flow(self, ask: Ask) -> ChildRun | None:
        """The run, created or found; ``None`` where there is one and ``if_exists`` says skip."""

    def look(self, trigger: RunTrigger | PollTrigger) -> Any | None:
        """The trigger's event if it has happened, else ``None``; looked for from here."""

    def pause(self, seconds: float) -> None:
        """So much time passes, in the task's place on its worker."""

    def here(self) -> timedelta:
        """For how long this attempt has been executing."""

    def now(self) -> datetime:
        """The present moment, aware."""

    def asked_before(self, key: str) -> int:
        """How often this attempt has asked under this key before; it has once more now."""


def ask_for(
    flow: Flow | str,
    *,
    conf: Mapping[str, Any] | None,
    logical_date: datetime | None,
    run_id: str | None,
    note: str,
    key: str | None,
    if_exists: str,
    fail_when_paused: bool,
    on_stop: str,
    waits: bool,
    services: ChildRunServices,
) -> Ask:
    """What is asked for, checked. Raises ``InvalidInput``."""
    flow_id = checked_flow_id(flow)
    logical_date = checked_date(logical_date)
    if run_id is not None:
        check_run_key(run_id)
    encoded = plain_conf(checked_conf(conf))
    if key is None:
        # What is asked for is its own name: a later try finds it again, in whatever order it asks.
        said = [flow_id, run_id, logical_date and logical_date.isoformat(), encoded]
        digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]
        key = f"{digest}:{services.asked_before(digest)}"
    elif not isinstance(key, str) or len(key) > KEY_CHARACTERS_MAX or not key.isprintable():
        raise InvalidInput(
            f"key={key!r}: give a printable text of at most {KEY_CHARACTERS_MAX} characters.",
            field="key",
        )
    return Ask(
        flow_id=flow_id,
        key=key,
        conf=encoded,
        logical_date=logical_date,
        run_id=run_id,
        note=note,
        if_exists=one_of(IfExists, "if_exists", if_exists),
        fail_when_paused=fail_when_paused,
        on_stop=one_of(OnStop, "on_stop", on_stop),
        waits=waits,
    )


def checked_conf(conf: object) -> Mapping[str, Any]:
    """What a run is given. Raises ``InvalidInput``."""
    if conf is None or isinstance(conf, Mapping):
        return conf or {}
    raise InvalidInput(f"conf={conf!r:.80}: give conf a dict.", field="conf")


def checked_date(value: object) -> datetime | None:
    """The logical date that is asked for, also of its ISO 8601 text. Raises ``InvalidInput``."""
    found = value
    if isinstance(value, str):
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            found = value
    if found is None or (isinstance(found, datetime) and found.utcoffset() is not None):
        return found
    raise InvalidInput(
        f"logical_date={value!r:.80}: give a datetime with a time zone.", field="logical_date"
    )


def checked_flow_id(flow: Flow | str) -> str:
    """The id of the flow that is meant. Raises ``InvalidInput``."""
    flow_id = flow if isinstance(flow, str) else getattr(flow, "flow_id", None)
    if not isinstance(flow_id, str) or not FLOW_OR_TASK_ID.fullmatch(flow_id):
        raise InvalidInput(
            f"{flow!r} is no flow: give a flow, or its id of {ID_RULE}.", field="flow_id"
        )
    return flow_id


def one_of(kind: type[KindT], name: str, value: object) -> KindT:
    """The value as one of the kind. Raises ``InvalidInput``."""
    try:
        return kind(str(value))
    except ValueError:
        known = ", ".join(repr(one.value) for one in kind)
        raise InvalidInput(f"{name}={value!r}: give one of {known}.", field=name) from None


def plain_conf(conf: Mapping[str, Any]) -> dict[str, Any]:
    """The conf of a run as JSON has it; moments, ids and decimals become texts. ``InvalidInput``."""
    plain: dict[str, Any] = _plain(conf, "conf", 0)
    size = len(json.dumps(plain, ensure_ascii=False).encode())
    if size > CONF_BYTES_MAX:
        raise InvalidInput(
            f"The conf is {size:,} bytes as JSON; the limit is {CONF_BYTES_MAX:,} bytes. Store the"
            " data elsewhere and hand over where it is.",
            field="conf",
        )
    return plain


def _plain(value: Any, path: str, depth: int) -> Any:
    if depth > values.DEPTH_MAX:
        raise InvalidInput(f"The conf at {path[:200]} is nested too deeply.", field="conf")
    match value:
        case None | bool() | int():
            return value
        case float() if math.isfinite(value):
            return value
        case str() if values.is_plain(value):
            return str(value)
        case Mapping() if all(isinstance(key, str) and values.is_plain(key) for key in value):
            return {
                str(key): _plain(one, f"{path}[{key!r}]", depth + 1) for key, one in value.items()
            }
        case list() | tuple() | set() | frozenset():
            return [_plain(one, f"{path}[{n}]", depth + 1) for n, one in enumerate(value)]
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal() | UUID():
            return str(value)
    raise InvalidInput(
        f"The conf at {path} is {value!r:.100}, which JSON cannot hold. Give texts, numbers, lists"
        " and dicts.",
        field="conf",
    )
