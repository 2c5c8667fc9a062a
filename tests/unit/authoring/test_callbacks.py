"""Callbacks of tasks and flows: what may be one, where it comes from, and what it is told."""

from __future__ import annotations

import functools
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.authoring import (
    ChildRunFailed,
    DeferralTimeout,
    Task,
    callbacks,
    flow,
    group,
    task,
)
from scheduler_app.authoring.callback_context import (
    ReportedError,
    RunPicture,
    TaskInstancePicture,
    context_of,
    exception_of,
)
from scheduler_app.rules.callbacks import CallbackOn
from scheduler_app.rules.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler_app.authoring.context import Context


def tell(context: Mapping[str, Any]) -> None:
    """A callback."""


def count(context: Mapping[str, Any]) -> None:
    """Another."""


class Notifier:
    """A callback with settings of its own."""

    def __call__(self, context: Mapping[str, Any]) -> None:
        """As a function."""


def test_a_task_names_its_callbacks_in_the_order_of_each_list() -> None:
    @task(on_failure_callback=[tell, count], on_retry_callback=tell)
    def t() -> None: ...

    @flow
    def f() -> None:
        t()

    assert f.definition().task("t").callbacks == {
        "on_failure": ("tell", "count"),
        "on_retry": ("tell",),
    }
    assert f.calls["t"].callbacks()[CallbackOn.FAILURE] == (tell, count)


def test_default_args_give_callbacks_that_a_task_replaces_one_by_one() -> None:
    @task(on_failure_callback=count)
    def own() -> None: ...

    @task(on_failure_callback=None)
    def silent() -> None: ...

    @task
    def plain() -> None: ...

    @flow(default_args={"on_failure_callback": tell, "on_success_callback": [tell]})
    def f() -> None:
        own()
        silent()
        plain()

    said = {t.task_id: t.callbacks for t in f.definition().tasks}
    assert said["own"] == {"on_failure": ("count",), "on_success": ("tell",)}
    assert said["silent"] == {"on_success": ("tell",)}
    assert said["plain"] == {"on_failure": ("tell",), "on_success": ("tell",)}
    assert f.definition().callbacks == {}, "default_args are for tasks"


def test_a_class_task_takes_callbacks_too() -> None:
    class Wait(Task):
        def execute(self, ctx: Context) -> None: ...

    @flow
    def f() -> None:
        Wait(on_skipped_callback=tell, on_execute_callback=Notifier())

    assert f.definition().task("Wait").callbacks == {
        "on_execute": ("Notifier",),
        "on_skipped": ("tell",),
    }


def test_a_flow_has_callbacks_of_its_runs() -> None:
    @task
    def t() -> None: ...

    @flow(on_failure_callback=tell, on_success_callback=[count, tell])
    def f() -> None:
        t()

    assert f.definition().callbacks == {"on_success": ("count", "tell"), "on_failure": ("tell",)}
    assert f.run_callbacks[CallbackOn.SUCCESS] == (count, tell)
    assert f.definition().task("t").callbacks == {}


@task
def a_task() -> None:
    """No callback: it can be called in a flow body only."""


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (5, "on_failure_callback=5"),
        ("tell", "on_failure_callback='tell'"),
        ([tell, None], "on_failure_callback=["),
        (lambda: None, "on_failure_callback=<function"),
        (lambda context, more: None, "on_failure_callback=<function"),
        (a_task, "on_failure_callback=<task function a_task>"),
        ([tell] * 21, "on_failure_callback=["),
    ],
)
def test_what_cannot_be_called_with_the_context_is_a_fault_with_its_place(
    value: Any, shown: str
) -> None:
    @task(on_failure_callback=value)
    def t() -> None: ...

    with pytest.raises(DefinitionError) as raised:

        @flow
        def f() -> None:
            t()

    faults: Any = raised.value.extra["faults"]
    (told,) = faults
    assert shown in told["message"]
    assert told["file"] == __file__
    assert told["line"] > 0
    assert told["remedy"].startswith("Give on_failure_callback ")


def test_a_flow_refuses_a_callback_that_is_none() -> None:
    @task
    def t() -> None: ...

    seven: Any = 7
    with pytest.raises(DefinitionError, match="on_success_callback=7"):

        @flow(on_success_callback=seven)
        def f() -> None:
            t()


def test_a_name_is_the_same_wherever_the_file_is_loaded() -> None:
    def named(callback: Callable[..., object]) -> str:
        return callbacks.name_of(callback)

    assert named(functools.partial(functools.partial(tell))) == "tell"
    assert named(Notifier()) == "Notifier"
    assert "0x" not in named(lambda context: None)


def test_a_coroutine_is_run_to_its_end() -> None:
    seen = []

    async def later(context: Mapping[str, Any]) -> None:
        seen.append(context["n"])

    callbacks.call(later, {"n": 1})
    assert seen == [1]


# -- what it is told ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "original"),
    [
        ("ValueError", ValueError),
        ("OSError", OSError),
        ("KeyError", KeyError),
        ("UnicodeDecodeError", UnicodeDecodeError),
        ("scheduler_app.rules.errors.DefinitionError", DefinitionError),
        ("DefinitionError", DefinitionError),
        ("ChildRunFailed", ChildRunFailed),
        ("DeferralTimeout", DeferralTimeout),
    ],
)
def test_the_exception_stands_for_the_one_that_was_raised(
    kind: str, original: type[Exception]
) -> None:
    told = exception_of({"type": kind, "message": "no page 7", "traceback": "Trace"}, None)
    assert isinstance(told, ReportedError)
    assert isinstance(told, original)
    assert (str(told), told.message, told.type, told.traceback) == (
        "no page 7",
        "no page 7",
        kind,
        "Trace",
    )
    assert type(told).__name__ == kind.rpartition(".")[2]


@pytest.mark.parametrize("kind", ["nowhere.Gone", "SystemExit", "print", "os.path", "a.<locals>.E"])
def test_a_class_that_is_not_there_or_none_leaves_the_text(kind: str) -> None:
    told = exception_of({"type": kind, "message": "m"}, None)
    assert told is not None
    assert (told.type, str(told), isinstance(told, SystemExit)) == (kind, "m", False)


def test_a_failure_without_an_exception_says_its_reason() -> None:
    told = exception_of(None, "It was killed.")
    assert told is not None
    assert str(told) == "It was killed."
    assert exception_of(None, None) is None


def test_the_context_has_the_names_of_this_product_and_of_airflow() -> None:
    date = datetime(2026, 3, 1, 2, tzinfo=UTC)
    run = RunPicture(
        flow_id="f",
        run_id="r",
        run_type="manual",
        state="running",
        run_attempt=1,
        logical_date=date,
        data_interval_start=date,
        data_interval_end=date,
        conf={"a": 1},
        note="",
        queued_at=date,
        start_date=date,
        end_date=None,
    )
    ti = TaskInstancePicture(
        flow_id="f",
        run_id="r",
        task_id="t",
        map_index=-1,
        state="failed",
        try_number=2,
        max_tries=1,
        attempt_id="x",
        queue="default",
        pool="default",
        priority=0,
        hostname="h",
        pid=1,
        start_date=date,
        end_date=datetime(2026, 3, 1, 2, 0, 5, tzinfo=UTC),
        result_of=lambda task_id, map_index: (task_id, map_index),
    )
    told = context_of(
        on="on_failure", run=run, ti=ti, exception=None, reason="why", params={"a": 1, "b": 2}
    )
    assert told["dag_run"] is told["run"] is run
    assert told["ti"] is told["task_instance"] is ti
    assert (told["dag_run"].dag_id, told["ti"].dag_id, told["dag"].dag_id) == ("f", "f", "f")
    assert (told["ds"], told["ds_nodash"], told["try_number"]) == ("2026-03-01", "20260301", 2)
    assert (told["task"].task_id, told["params"], told["reason"]) == ("t", {"a": 1, "b": 2}, "why")
    assert ti.duration == 5
    assert ti.xcom_pull(task_ids="up") == ("up", -1)
    assert ti.xcom_pull("up", key="another") is None


def test_a_group_that_is_no_unit_has_no_end_to_call_for() -> None:
    with pytest.raises(DefinitionError, match="default_args"):

        @flow
        def f() -> None:
            with group("pay", on_failure_callback=print):
                raise AssertionError("never reached")
