"""Options of tasks: their names, units and bounds, checked where they are written."""

from __future__ import annotations

import inspect
import math
import re
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.authoring.faults import Fault, Place, did_you_mean, fault
from scheduler_app.authoring.limits import Limit
from scheduler_app.rules import definition, mapping
from scheduler_app.rules.callbacks import OF_TASK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from scheduler_app.rules.callbacks import CallbackOn

RETRIES_MAX: Final = 10_000
SLOTS_MAX: Final = 32_767
PRIORITY_MAX: Final = 1_000_000_000  # either sign
DURATION_MAX_S: Final = 10 * 366 * 86_400.0  # ten years
NAME_CHARACTERS_MAX: Final = 250
LIMITS_MAX: Final = 8  # of one task
ACTIVE_MAX: Final = 1_000_000
CALLABLES_MAX: Final = 20  # of one callback option
EXCEPTIONS_MAX: Final = 50  # of one retry option
NOWHERE: Final[Mapping[str, str]] = {}
_CLASS_NAME: Final = re.compile(r"[^\W\d][\w.<>]{0,249}")

# What people who come from Airflow would write, and how it is said here.
AIRFLOW_NAMES: Final[Mapping[str, str]] = {
    "dag_id": "Write flow_id=... on @flow.",
    "execution_timeout": "Write timeout=...",
    "pool_slots": "Write slots=...",
    "priority_weight": "Write priority=...",
    "retry_exponential_backoff": "Write backoff=2.0 (each delay is twice the one before).",
    "schedule_interval": "Write schedule=...",
    "dagrun_timeout": "Write run_timeout=...",
    "max_active_tis_per_dag": "Write max_active_per_flow=...",
    "max_active_tis_per_dagrun": "Write max_active_per_run=...",
    "task_concurrency": "Write max_active_per_flow=...",
    "concurrency": "Write max_active_tasks_per_flow=... (of one run: max_active_tasks=...).",
    "prefix_group_id": "Write prefix=...",
    "tooltip": "Write doc=...",
    "map_index_template": 'Write map_label="{path}", with the name of an argument that is mapped over.',
    "on_failure_fail_dagrun": "Write fails_run=...",
    "timetable": "Write schedule=Schedule(...).",
    "poke_interval": "Write poll_interval=...",
    "exponential_backoff": "Write poll_backoff=2.0 (each interval is twice the one before).",
    "max_wait": "Write poll_interval_max=...",
    "silent_fail": "Write silent_failures=True.",
    "never_fail": "Write soft_fail=True.",
    "deferrable": "Write mode='defer', or mode='reschedule'.",
    "external_dag_id": "Write flow_id=...",
    "external_task_id": "Write wait_task_id=...",
    "allowed_states": "Write states=...",
    "failed_states": "Leave it out: whatever is not one of states fails.",
    "skipped_states": "Write skip_states=...",
    "trigger_dag_id": "Write flow_id=...",
    "trigger_run_id": "Write run_id=...",
    "wait_for_completion": "Write wait=...",
    "reset_dag_run": "Write if_exists='reset'.",
    "skip_when_already_exists": "Write if_exists='skip'.",
    "fail_when_dag_is_paused": "Write fail_when_paused=...",
    "rerun_with_latest_version": "Write run_on_latest_version=True.",
    "max_consecutive_failed_dag_runs": "Write max_consecutive_failed_runs=...",
    "sla": "Write deadline=... (or expected_within=...) on @flow.",
    "sla_miss_callback": "Write deadline=... and alerts=[...] on @flow.",
    "email": "Write on_failure_callback=EmailNotifier('ops@example.com'), or alerts=[...] on @flow.",
    "email_on_failure": "Write on_failure_callback=EmailNotifier('ops@example.com').",
    "email_on_retry": "Write on_retry_callback=EmailNotifier('ops@example.com').",
    "provide_context": "Leave it out: a parameter called ctx is filled in when the task runs.",
    "op_kwargs": "Pass the arguments in the call of the task.",
    "op_args": "Pass the arguments in the call of the task.",
    "python_callable": "Put @task on the function, and call it in the flow's body.",
    "templates_dict": "Pass Template('{ds}') as an argument, at any depth.",
    "do_xcom_push": "Leave it out: return None where nothing is to be kept.",
    "multiple_outputs": "Leave it out: return a dict, and take what you need of it in the next task.",
    "doc_md": "Write doc=..., or a docstring.",
    "task_display_name": "Write task_id=...",
    "dag_display_name": "Write flow_id=..., and description=...",
    "task_group": "Call the task in the block of with group(...):",
    "max_active_tasks_per_dag": "Write max_active_tasks=... (of one run).",
    "fail_fast": "Leave it out: what waits for a failed task does not start; a group with retry= may"
    " stop its tasks.",
    "fail_stop": "Leave it out: what waits for a failed task does not start; a group with retry= may"
    " stop its tasks.",
    "render_template_as_native_obj": "Leave it out: a Template is a text; read ctx.params for values.",
    "user_defined_macros": "Leave it out: compute in the task, from ctx.",
    "ignore_first_depends_on_past": "Leave it out: the first run of a flow waits for nothing.",
    "wait_for_past_depends_before_skipping": "Leave it out: depends_on_past=True waits before that.",
    "executor": "Write queue=...: the workers that run it say which queues they serve.",
    "executor_config": "Write queue=...: the workers that run it say which queues they serve.",
    "run_as_user": "Start a worker as that user for a queue of its own, and write queue=...",
    "sensor": "Write @task.sensor.",
}


class BadOption(ValueError):
    """What an option must be; the caller adds the name, the value and the place."""


def duration_s(value: object) -> float:
    """Seconds of a timedelta or a number of seconds."""
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = float(value)
    else:
        raise BadOption("a timedelta or a number of seconds")
    if not math.isfinite(seconds) or not 0 <= seconds <= DURATION_MAX_S:
        raise BadOption("a duration from 0 s to 10 years")
    return seconds


def positive_duration_s(value: object) -> float:
    """Seconds of a duration that is longer than nothing."""
    seconds = duration_s(value)
    if seconds == 0:
        raise BadOption("a duration longer than 0 s")
    return seconds


def whole_number(low: int, high: int) -> Callable[[object], int]:
    """A check for whole numbers between the two bounds, both allowed."""

    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise BadOption(f"a whole number from {low} to {high}")
        return int(value)

    return check


def optional(check: Callable[[object], Any]) -> Callable[[object], Any]:
    """A check that lets None pass too."""
    return lambda value: None if value is None else check(value)


def name(value: object) -> str:
    """A name of a pool or queue."""
    if (
        not isinstance(value, str)
        or not 0 < len(value) <= NAME_CHARACTERS_MAX
        or not value.isprintable()
    ):
        raise BadOption(f"a printable text of 1 to {NAME_CHARACTERS_MAX} characters")
    return str(value)


def identifier(value: object) -> str:
    """A flow or task id."""
    if not isinstance(value, str) or not definition.FLOW_OR_TASK_ID.fullmatch(value):
        raise BadOption(f"an id of {definition.ID_RULE}")
    return str(value)


def text(value: object) -> str:
    """Any text that can be stored."""
    if not isinstance(value, str) or "\x00" in value:
        raise BadOption("a text without NUL characters")
    return str(value)


def flag(value: object) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise BadOption("True or False")
    return value


def backoff(value: object) -> float:
    """The factor between one retry delay and the next."""
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not math.isfinite(value)
        or not 0 <= value <= 1000
    ):
        raise BadOption("a number from 0 to 1000 (0 keeps the delay fixed, 2.0 doubles it)")
    return float(value)


def growth(value: object) -> float:
    """The factor between one interval and the next."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1 <= value <= 1000:
        raise BadOption("a number from 1 to 1000 (1 keeps the interval, 2.0 doubles it)")
    return float(value)


def jitter(value: object) -> float:
    """The share of a retry delay that chance may add."""
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not math.isfinite(value)
        or not 0 <= value <= 1
    ):
        raise BadOption("a number from 0 to 1 (the share of the delay that chance may add)")
    return float(value)


def exception_names(value: object) -> tuple[str, ...]:
    """The exceptions of a rule, as the names that ``rules/retry.py`` compares; none for None."""
    if value is None:
        return ()
    given = tuple(value) if isinstance(value, (list, tuple, set, frozenset)) else (value,)
    names = tuple(_exception_name(one) for one in given)
    if not 0 < len(names) <= EXCEPTIONS_MAX:
        raise BadOption(f"1 to {EXCEPTIONS_MAX} exception classes, or None")
    return tuple(dict.fromkeys(sorted(names) if isinstance(value, (set, frozenset)) else names))


def _exception_name(value: object) -> str:
    if isinstance(value, type) and issubclass(value, BaseException):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, str) and _CLASS_NAME.fullmatch(value):
        return value
    raise BadOption(
        "exception classes, or their names ('requests.exceptions.Timeout') where they cannot be"
        " imported: one, or a tuple of them"
    )


def retry_policies(value: object) -> tuple[definition.RetryRule, ...]:
    """The rules of a dict from exceptions to ``retry(...)``."""
    wanted = "a dict such as {OSError: retry(retries=5), (KeyError, 'Gone'): retry(retries=0)}"
    if value is None:
        return ()
    if not isinstance(value, dict) or not value or len(value) > EXCEPTIONS_MAX:
        raise BadOption(wanted)
    if not all(isinstance(rule, definition.RetryRule) for rule in value.values()):
        raise BadOption(wanted)
    return tuple(
        replace(rule, on=exception_names(exceptions)) for exceptions, rule in value.items()
    )


def suspect_factor(value: object) -> float:
    """How many times its usual longest duration a task may take before it counts as suspect."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1 <= value <= 1000:
        raise BadOption("a number from 1 to 1000 (times the P99 of the task's own history)")
    return float(value)


def trigger_rule(value: object) -> str:
    """One of the known trigger rules."""
    known = [rule.value for rule in definition.TriggerRule]
    if not isinstance(value, str) or value not in known:
        raise BadOption(f"one of {', '.join(known)}")
    return str(value)


def weight_rule(value: object) -> str:
    """What the priority is made of."""
    known = [rule.value for rule in definition.WeightRule]
    if not isinstance(value, str) or value not in known:
        raise BadOption(f"one of {', '.join(known)}")
    return str(value)


def limits(value: object) -> tuple[definition.LimitDefinition, ...]:
    """The limits of keys of a task; none for None."""
    if value is None:
        return ()
    given = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    if not 0 < len(given) <= LIMITS_MAX or not all(isinstance(one, Limit) for one in given):
        raise BadOption(
            f"Limit('customer:{{params[customer]}}', 2), or a list of 1 to {LIMITS_MAX} of them"
        )
    found = tuple(one.definition() for one in given if isinstance(one, Limit))
    if len({one.key for one in found}) < len(found):
        raise BadOption("limits of different keys")
    return found


def callables(value: object) -> tuple[Callable[[Mapping[str, Any]], object], ...]:
    """The callables of a callback option, each fit to be called with the context; none for None."""
    if value is None:
        return ()
    given = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    if len(given) > CALLABLES_MAX:
        raise BadOption(f"at most {CALLABLES_MAX} functions")
    if not all(callable(one) and _takes_context(one) for one in given):
        raise BadOption(
            "a function of one argument, the context, or a list of such functions (no task, no class)"
        )
    return given


def _takes_context(callback: Callable[..., object]) -> bool:
    # A task can be called in a flow body only; its plain function is `.function`.
    if hasattr(callback, "override") and hasattr(callback, "function"):
        return False
    if inspect.isgeneratorfunction(callback) or inspect.isasyncgenfunction(callback):
        return False
    if inspect.isclass(callback):  # a notifier that was not made: calling it would tell nobody
        return False
    try:
        inspect.signature(callback).bind({})
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        return True
    return True


def callback_options(
    of: Iterable[CallbackOn],
) -> dict[str, tuple[str, Callable[[object], Any]]]:
    """The callback options, each with the field that ``authoring.callbacks`` takes out again."""
    return {f"{on}_callback": (on.value, callables) for on in of}


# option -> (field of TaskDefinition, check)
TASK_OPTIONS: Final[Mapping[str, tuple[str, Callable[[object], Any]]]] = {
    "task_id": ("task_id", identifier),
    "retries": ("retries", whole_number(0, RETRIES_MAX)),
    "retry_delay": ("retry_delay_s", duration_s),
    "backoff": ("backoff", backoff),
    "max_retry_delay": ("max_retry_delay_s", optional(duration_s)),
    "jitter": ("jitter", optional(jitter)),
    "retry_on": ("retry_on", exception_names),
    "fail_on": ("fail_on", exception_names),
    "retry_policies": ("retry_rules", retry_policies),
    "timeout": ("timeout_s", optional(positive_duration_s)),
    "suspect_factor": ("suspect_factor", optional(suspect_factor)),
    "suspect_after": ("suspect_after_s", optional(positive_duration_s)),
    "pool": ("pool", name),
    "slots": ("pool_slots", whole_number(1, SLOTS_MAX)),
    "priority": ("priority", whole_number(-PRIORITY_MAX, PRIORITY_MAX)),
    "weight_rule": ("weight_rule", weight_rule),
    "limit": ("limits", limits),
    "max_active_per_flow": ("max_active_per_flow", optional(whole_number(1, ACTIVE_MAX))),
    "max_active_per_run": ("max_active_per_run", optional(whole_number(1, ACTIVE_MAX))),
    "queue": ("queue", name),
    "trigger_rule": ("trigger_rule", trigger_rule),
    "depends_on_past": ("depends_on_past", flag),
    "wait_for_downstream": ("wait_for_downstream", flag),
    "doc": ("doc", text),
    "map_label": ("map_label", text),
    "max_map_length": (
        "max_map_length",
        optional(whole_number(1, mapping.INSTANCES_MAX)),
    ),
    **callback_options(OF_TASK),
}


def check_options(
    given: Mapping[str, object],
    known: Mapping[str, tuple[str, Callable[[object], Any]]],
    place: Place,
    subject: str,
    elsewhere: Mapping[str, str] = NOWHERE,
) -> tuple[dict[str, Any], list[Fault]]:
    """The given options as definition fields, and a fault for each that is unknown or wrong.

    ``elsewhere``: remedies for options that have their place somewhere else.
    """
    fields: dict[str, Any] = {}
    faults: list[Fault] = []
    for option, value in given.items():
        if option not in known:
            remedy = elsewhere.get(option) or AIRFLOW_NAMES.get(option)
            remedy = remedy or did_you_mean(option, list(known))
            faults.append(fault(place, f"{subject} has no option {option!r}.", remedy))
            continue
        field, check = known[option]
        try:
            fields[field] = check(value)
        except BadOption as wanted:
            faults.append(
                fault(
                    place,
                    f"{subject} has {option}={_shown(value)}.",
                    f"Give {option} {wanted}.",
                )
            )
    return fields, faults


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
