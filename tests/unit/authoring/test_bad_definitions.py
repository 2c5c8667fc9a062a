"""Each fault of a definition names what, where and what to do; all of them come at once."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from scheduler_app.authoring.faults import Fault, faults_of
from scheduler_app.authoring.faults import Place as AnyPlace
from scheduler_app.authoring.registry import collecting
from scheduler_app.processes import bundles
from scheduler_app.rules.errors import DefinitionError

HEAD = """\
from datetime import datetime
from scheduler_app.authoring import flow, task, Task
@task
def a(ctx, x=1): ...
@task
def b(y): ...
"""  # 6 lines


def faults(folder: Path, source: str) -> list[Fault]:
    (folder / "flows.py").write_text(HEAD + textwrap.dedent(source).lstrip("\n"), encoding="utf-8")
    try:
        return bundles.load_file(folder, "flows.py").faults()
    except DefinitionError as error:
        return faults_of(error, AnyPlace(file="", line=0))
    finally:
        bundles._shelf.clear()


# source after HEAD, the line of the fault in the file, words of the message, words of the remedy
BAD = {
    "a task that was not called": (
        "@flow\ndef f():\n    b(a)",
        9,
        "Task 'b' is given <task function a> itself, which was not called",
        "the brackets of the call",
    ),
    "a task that was not called, in a list": (
        "@flow\ndef f():\n    b({'x': [a(), a.partial(x=2)]})",
        9,
        "itself, which was not called",
        "the brackets of the call",
    ),
    "a class task that was not made": (
        "class C(Task):\n    def execute(self, ctx): ...\n@flow\ndef f():\n    b((C,))",
        11,
        "Task 'b' is given <class",
        "the brackets of the call",
    ),
    "a group that was not called": (
        "from scheduler_app.authoring import group\n@group\ndef g():\n    a()\n@flow\ndef f():\n"
        "    g() >> b(g)",
        13,
        "Task 'b' is given <group function g> itself",
        "the brackets of the call",
    ),
    "unknown option": (
        "@task(retrys=1)\ndef c(): ...\n@flow\ndef f():\n    c()",
        7,
        "'retrys'",
        "'retries'",
    ),
    "an option of Airflow's name": (
        "@task(execution_timeout=1)\ndef c(): ...\n@flow\ndef f():\n    c()",
        7,
        "'execution_timeout'",
        "timeout=",
    ),
    "negative retries": (
        "@flow\ndef f():\n    a.override(retries=-1)()",
        9,
        "retries=-1",
        "from 0 to",
    ),
    "a parameter of a bad schema": (
        "from scheduler_app.authoring import Param\n@flow(params={'n': Param(1, type='whole')})\n"
        "def f():\n    a()",
        8,
        "'n' of flow 'f' is declared wrongly: type: 'whole'",
        "JSON Schema",
    ),
    "a default that does not fit": (
        "from scheduler_app.authoring import Param\n@flow(params={'n': Param(0, minimum=1)})\n"
        "def f():\n    a()",
        8,
        "a default that does not fit: 0 is less than the minimum of 1",
        "a default that fits",
    ),
    "a schedule that nobody can ask": (
        "from scheduler_app.authoring import Param\n"
        "@flow(schedule='@daily', params={'n': Param(type=int)})\ndef f():\n    a()",
        8,
        "has no default, and its schedule starts runs",
        "Param(default, ...)",
    ),
    "a template of a name that there is not": (
        "from scheduler_app.authoring import Template\n@flow\ndef f():\n    a(x=Template('{day}'))",
        10,
        "there is no 'day'",
        "Known: ",
    ),
    "a template with a brace too many": (
        "from scheduler_app.authoring import Template\n@flow\ndef f():\n    a(x=Template('{ds'))",
        10,
        "cannot be filled in: expected '}'",
        "{{ and }}",
    ),
    "an exception that is none": (
        "@flow\ndef f():\n    a.override(retry_on=(OSError, 5))()",
        9,
        "retry_on=",
        "exception classes, or their names",
    ),
    "no exception at all": (
        "@flow\ndef f():\n    a.override(fail_on=())()",
        9,
        "fail_on=()",
        "1 to 50 exception classes",
    ),
    "an exception in two rules": (
        "@flow\ndef f():\n    a.override(retry_on=OSError, fail_on=(OSError,))()",
        9,
        "OSError in two retry rules",
        "one of retry_on, fail_on and retry_policies",
    ),
    "a retry policy that is a number": (
        "@flow\ndef f():\n    a.override(retry_policies={OSError: 5})()",
        9,
        "retry_policies=",
        "retry(retries=5)",
    ),
    "a retry policy of bad numbers": (
        "from scheduler_app.authoring import retry\nPOLICY = retry(\n    retries=-1)",
        8,
        "retries=-1",
        "from 0 to",
    ),
    "more jitter than there is delay": (
        "@flow\ndef f():\n    a.override(jitter=2)()",
        9,
        "jitter=2",
        "from 0 to 1",
    ),
    "retries that are no number": (
        "@flow\ndef f():\n    a.override(retries=True)()",
        9,
        "retries=True",
        "whole number",
    ),
    "a negative delay": (
        "@flow\ndef f():\n    a.override(retry_delay=-1)()",
        9,
        "retry_delay=-1",
        "0 s",
    ),
    "a delay without end": (
        "@flow\ndef f():\n    a.override(retry_delay=float('inf'))()",
        9,
        "retry_delay=inf",
        "10 years",
    ),
    "a timeout of nothing": (
        "@flow\ndef f():\n    a.override(timeout=0)()",
        9,
        "timeout=0",
        "longer",
    ),
    "no slots": ("@flow\ndef f():\n    a.override(slots=0)()", 9, "slots=0", "from 1 to"),
    "a priority that is too great": (
        "@flow\ndef f():\n    a.override(priority=10**10)()",
        9,
        "priority=10000000000",
        "whole number",
    ),
    "a pool without a name": (
        "@flow\ndef f():\n    a.override(pool='')()",
        9,
        "pool=''",
        "1 to 250",
    ),
    "an unknown trigger rule": (
        "@flow\ndef f():\n    a.override(trigger_rule='all_good')()",
        9,
        "trigger_rule='all_good'",
        "all_success",
    ),
    "a task id outside the rule": (
        "@flow\ndef f():\n    a.override(task_id='a b')()",
        9,
        "task_id='a b'",
        "letters, digits",
    ),
    "a flow id outside the rule": (
        "@flow(flow_id='a/b')\ndef f():\n    a()",
        7,
        "flow_id='a/b'",
        "letters",
    ),
    "a flow id that is too long": (
        "@flow(flow_id='a' * 251)\ndef f():\n    a()",
        7,
        "flow_id=",
        "250",
    ),
    "two tasks of one id": (
        "@flow\ndef f():\n    a.override(task_id='same')()\n    b.override(task_id='same')(1)",
        10,
        "'same' is used twice",
        "another task_id",
    ),
    "a cycle": (
        "@flow\ndef f():\n    x = a()\n    y = b(x)\n    y >> x",
        9,
        "a -> b -> a",
        "Remove one",
    ),
    "a task after itself": ("@flow\ndef f():\n    x = a()\n    x >> x", 9, "a -> a", "Remove one"),
    "a bad cron": ("@flow(schedule='0 25 * * *')\ndef f():\n    a()", 7, "'0 25 * * *'", "0-23"),
    "a schedule of another kind": (
        "@flow(schedule=60)\ndef f():\n    a()",
        7,
        "schedule=60",
        "cron",
    ),
    "an unknown zone": (
        "@flow(schedule='@daily', timezone='Mars/Base')\ndef f():\n    a()",
        7,
        "Mars/Base",
        "",
    ),
    "an end before the start": (
        "@flow(start_date='2024-02-01', end_date='2024-01-01')\ndef f():\n    a()",
        7,
        "before it starts",
        "after start_date",
    ),
    "a date that is none": (
        "@flow(start_date='soon')\ndef f():\n    a()",
        7,
        "start_date='soon'",
        "ISO",
    ),
    "no active runs": (
        "@flow(max_active_runs=0)\ndef f():\n    a()",
        7,
        "max_active_runs=0",
        "from 1",
    ),
    "params that are no JSON": (
        "@flow(params={'x': object()})\ndef f():\n    a()",
        7,
        "params=",
        "JSON",
    ),
    "tags as one text": ("@flow(tags='a')\ndef f():\n    a()", 7, "tags='a'", "a list"),
    "default_args that are no dict": (
        "@flow(default_args=3)\ndef f():\n    a()",
        7,
        "default_args",
        "dict",
    ),
    "an unknown default": (
        "@flow(default_args={'colour': 'x'})\ndef f():\n    a()",
        7,
        "default_args has no option 'colour'",
        "Known:",
    ),
    "a default of Airflow's": (
        "@flow(default_args={'email': 'x'})\ndef f():\n    a()",
        7,
        "default_args has no option 'email'",
        "EmailNotifier",
    ),
    "a default that is the flow's": (
        "@flow(default_args={'start_date': '2026-01-01'})\ndef f():\n    a()",
        7,
        "default_args has no option 'start_date'",
        "start_date=... on @flow",
    ),
    "an option of tasks on a flow": (
        "@flow(retries=3)\ndef f():\n    a()",
        7,
        "'f' has no option 'retries'",
        "default_args={'retries': ...}",
    ),
    "an option in the call of a task": (
        "@flow\ndef f():\n    a(retries=3)",
        9,
        "takes no argument 'retries'",
        "a.override(retries=...)",
    ),
    "a keyword that JSON Schema does not have": (
        "from scheduler_app.authoring import Param\n@flow(params={'n': Param(1, minimun=0)})\n"
        "def f():\n    a()",
        8,
        "'n' of flow 'f' has no keyword 'minimun'",
        "'minimum'",
    ),
    "such a keyword deep inside": (
        "from scheduler_app.authoring import Param\n"
        "@flow(params={'n': Param([], type=list, items={'typ': 'string'})})\ndef f():\n    a()",
        8,
        "no keyword 'typ'",
        "'type'",
    ),
    "a setup that is made a teardown": (
        "@flow\ndef f():\n    a().as_setup().as_teardown()",
        9,
        "'a' is a setup already, and is made a teardown",
        "one role",
    ),
    "a teardown that is made a setup": (
        "@flow\ndef f():\n    x = a().as_teardown()\n    b(1).as_teardown(setups=x)",
        10,
        "'a' is a teardown already, and is made a setup",
        "one role",
    ),
    "dicts of arguments that are none": (
        "@flow\ndef f():\n    b.expand_kwargs([{'y': 1}, 2])",
        9,
        "maps over 2, which is no dict of arguments",
        ".map(...)",
    ),
    "a dict of arguments with a wrong name": (
        "@flow\ndef f():\n    a.expand_kwargs([{'x': 1}, {'z': 2}])",
        9,
        "unexpected keyword argument 'z'",
        "Known: x",
    ),
    "a dict of attributes with a wrong name": (
        "class C(Task):\n    path: str\n    def execute(self, ctx): ...\n@flow\ndef f():\n"
        "    C.expand_kwargs([{'paht': 1}])",
        12,
        "takes no 'paht'",
        "'path'",
    ),
    "a list that is expanded without a name": (
        "@flow\ndef f():\n    b.expand([1])",
        9,
        "'b' is expanded over what has no name",
        ".expand(path=[...])",
    ),
    "an option that is expanded": (
        "@flow\ndef f():\n    b.expand(y=[1], retries=3)",
        9,
        "maps over 'retries', which is an option",
        "b.override(retries=...)",
    ),
    "an argument of a class task by place": (
        "class C(Task):\n    path: str\n    def execute(self, ctx): ...\n@flow\ndef f():\n"
        "    C('/in')",
        12,
        "C is given '/in' by place",
        "C(path='/in')",
    ),
    "a group called wrongly": (
        "from scheduler_app.authoring import group\n@group\ndef g(x):\n    a()\n@flow\ndef f():\n    g()",
        13,
        "'g' is called wrongly: missing a required argument: 'x'",
        "It takes (x)",
    ),
    "a group of a wrong dict": (
        "from scheduler_app.authoring import group\n@group\ndef g(x):\n    b(x)\n@flow\ndef f():\n"
        "    g.expand_kwargs([{'z': 1}])",
        13,
        "missing a required argument: 'x'",
        "It takes (x)",
    ),
    "a task that is defined below": (
        "@flow\ndef f():\n    later()\n@task\ndef later(): ...",
        9,
        "NameError: name 'later' is not defined",
        "above it",
    ),
    "a context by Airflow's name": (
        "@task\ndef c(**context): ...\n@flow\ndef f():\n    c()",
        7,
        "takes **context",
        "ctx as its first parameter",
    ),
    "a value that Airflow fills in": (
        "@task\ndef c(ds=None): ...\n@flow\ndef f():\n    c()",
        11,
        "without 'ds', which is not filled in",
        'Template("{ds}")',
    ),
    "a format of what is no date": (
        "from scheduler_app.authoring import Template\n@flow\ndef f():\n    b(Template('{ds:%Y}'))",
        10,
        "which is for dates alone",
        "{logical_date:%Y}",
    ),
    "a sensor over states that there are not": (
        "from scheduler_app.authoring import WaitForRun\n@flow\ndef f():\n"
        "    WaitForRun(flow_id='g', states=['done'])",
        10,
        "states=['done'] is no list of 'failed', 'success'",
        "Correct",
    ),
    "a sensor for two moments": (
        "from scheduler_app.authoring import WaitForTime\n@flow\ndef f():\n"
        "    WaitForTime(after=3, at='2026-01-01T00:00:00Z')",
        10,
        "takes one of at=, after= and after_interval=",
        "Correct",
    ),
    "a sensor for a moment without a zone": (
        "from scheduler_app.authoring import WaitForTime\n@flow\ndef f():\n"
        "    WaitForTime(at='2026-01-01T00:00:00')",
        10,
        "with a time zone",
        "Correct",
    ),
    "a sensor for an address of another kind": (
        "from scheduler_app.authoring import WaitForHttp\n@flow\ndef f():\n"
        "    WaitForHttp(url='ftp://x')",
        10,
        "an http or https address",
        "Correct",
    ),
    "a conf that is no dict": (
        "from scheduler_app.authoring import trigger_flow\n@flow\ndef f():\n"
        "    trigger_flow('g', conf=3)",
        10,
        "conf=3",
        "a dict",
    ),
    "a flow without tasks": ("@flow\ndef f(): ...", 7, "has no tasks", "Call at least one"),
    "a flow function with arguments": (
        "@flow\ndef f(day):\n    a()",
        7,
        "takes arguments (day)",
        "params",
    ),
    "a flow in a flow": (
        "@flow\ndef f():\n    a()\n    @flow\n    def g():\n        a()",
        10,
        "'g' is defined inside flow 'f'",
        "top of the file",
    ),
    "a body that raises": (
        "@flow\ndef f():\n    a()\n    1 / 0",
        10,
        "ZeroDivisionError",
        "into a task",
    ),
    "a task called outside a flow": ("a()", 7, "'a' is called outside a flow", "a.function"),
    "a task of another flow": (
        "kept = []\n@flow\ndef f():\n    kept.append(a())\n@flow\ndef g():\n    b(kept[0])",
        13,
        "flow 'g' is tied to task 'a' of flow 'f'",
        "one flow",
    ),
    "ctx given in the call": ("@flow\ndef f():\n    a(ctx=1)", 9, "with ctx=", "Leave ctx out"),
    "ctx with a star": (
        "@task\ndef c(**ctx): ...\n@flow\ndef f():\n    c()",
        7,
        "takes **ctx",
        "without the star",
    ),
    "a missing argument": (
        "@flow\ndef f():\n    b()",
        9,
        "missing a required argument: 'y'",
        "It takes (y",
    ),
    "an unknown argument": ("@flow\ndef f():\n    a(z=1)", 9, "'z'", "Known: x"),
    "too many arguments": (
        "@flow\ndef f():\n    a(1, 2)",
        9,
        "too many positional",
        "ctx is filled in",
    ),
    "a generator as a task": (
        "@task\ndef c():\n    yield 1\n@flow\ndef f():\n    c()",
        7,
        "yields",
        "list",
    ),
    "an arrow to a task that was not called": (
        "@flow\ndef f():\n    a() >> b",
        9,
        "beside >>",
        "Call it",
    ),
    "an arrow to a value": (
        "@flow\ndef f():\n    a() >> 3",
        9,
        "3 stands beside >>",
        "called task",
    ),
    "setups by name": (
        "@flow\ndef f():\n    a().as_teardown(setups='a')",
        9,
        "Teardown 'a' has setups='a'",
        "a called task",
    ),
    "a setup that is none": (
        "@flow\ndef f():\n    a().as_teardown(setups=5)",
        9,
        "Teardown 'a' has setups=5",
        "a called task",
    ),
    "a result that is tested": (
        "@flow\ndef f():\n    if a(): b(1)",
        9,
        "is tested",
        "inside that task",
    ),
    "a result that is looped over": (
        "@flow\ndef f():\n    for x in a(): b(x)",
        9,
        "is looped over",
        "inside that task",
    ),
    "a result that is looked into": (
        "@flow\ndef f():\n    b(a()['x'])",
        9,
        "is looked into",
        "whole",
    ),
    "a result that is made into text": (
        "@flow\ndef f():\n    b(f'{a()}')",
        9,
        "is made into text",
        "whole",
    ),
    "a result as a key": ("@flow\ndef f():\n    b({a(): 1})", 9, "as a key", "as a value"),
    "an argument that contains itself": (
        "@flow\ndef f():\n    x = []\n    x.append(x)\n    b(x)",
        11,
        "contains itself",
        "flatter",
    ),
    "@task on what is no function": ("x = task(3)", 7, "no function", "on a def"),
    "@task twice": ("@task\n@task\ndef c(): ...", 7, "twice", "Remove one"),
    "@flow on what is no function": ("x = flow(3)", 7, "no function", "on a def"),
    "a class task without execute": (
        "class C(Task): ...\n@flow\ndef f():\n    C()",
        10,
        "no execute method",
        "def execute(self, ctx)",
    ),
    "a class task whose execute takes no ctx": (
        "class C(Task):\n    def execute(self): ...\n@flow\ndef f():\n    C()",
        8,
        "takes (self)",
        "def execute(self, ctx)",
    ),
    "a class task that does not call its base": (
        "class C(Task):\n    def __init__(self): ...\n    def execute(self, ctx): ...\n@flow\ndef f():\n    C()",
        10,
        "does not call the __init__",
        "super().__init__",
    ),
    "a class task without its attribute": (
        "class C(Task):\n    path: str\n    def execute(self, ctx): ...\n@flow\ndef f():\n    C()",
        12,
        "made without path",
        "C(path=...)",
    ),
    "a class task made outside a flow": (
        "class C(Task):\n    def execute(self, ctx): ...\nC()",
        9,
        "outside a flow",
        "@flow function",
    ),
    "an option that the class task does not have": (
        "class C(Task):\n    path: str = ''\n    def execute(self, ctx): ...\n@flow\ndef f():\n    C(paht=1)",
        12,
        "'paht'",
        "'path'",
    ),
    "two flows of one name": (
        "@flow\ndef f():\n    a()\ng = f\n@flow\ndef f():\n    a()",
        11,
        "'f' is defined twice",
        "Rename",
    ),
    "NUL in a docstring": (
        '@flow\ndef f():\n    """x\\0"""\n    a()',
        7,
        "cannot be stored",
        "NUL",
    ),
}


@pytest.mark.parametrize(("source", "line", "message", "remedy"), BAD.values(), ids=BAD.keys())
def test_a_bad_definition_is_told_with_file_line_and_remedy(
    tmp_path: Path, source: str, line: int, message: str, remedy: str
) -> None:
    (told,) = faults(tmp_path, source)
    assert message in told.message
    assert remedy in told.remedy
    assert told.remedy
    assert (told.file, told.line) == (str(tmp_path / "flows.py"), line)


def test_all_faults_of_a_flow_come_at_once_each_at_its_own_line(tmp_path: Path) -> None:
    told = faults(
        tmp_path,
        """
        @task(retries=-1)
        def c(): ...
        @flow(schedule="never", max_active_runs=0)
        def f():
            x = c()
            x >> x
            c.override(pool=1)()
            b()
        """,
    )
    assert [fault.line for fault in told] == [9, 9, 7, 13, 14, 11]


def test_a_faulty_flow_does_not_keep_the_others_of_its_file_from_being_defined(
    tmp_path: Path,
) -> None:
    (tmp_path / "flows.py").write_text(
        HEAD + "@flow\ndef bad():\n    a(z=1)\n@flow\ndef good():\n    a()\n", encoding="utf-8"
    )
    try:
        loaded = bundles.load_file(tmp_path, "flows.py")
    finally:
        bundles._shelf.clear()
    assert list(loaded.flows()) == ["good"]
    assert len(loaded.faults()) == 1


def test_where_nobody_collects_a_faulty_flow_raises_with_everything_in_the_message() -> None:
    from scheduler_app.authoring import flow, task  # noqa: PLC0415 - as in an author's shell

    @task
    def a() -> None: ...

    with pytest.raises(DefinitionError) as caught:

        @flow(max_active_runs=0)
        def f() -> None:
            a(1)  # type: ignore[call-arg,unused-ignore]  # what is tested

    error = caught.value
    assert "max_active_runs=0" in str(error)
    assert "too many positional" in str(error)
    assert error.extra["file"] == __file__
    assert error.extra["remedy"]


def test_collecting_ends_with_its_block() -> None:
    from scheduler_app.authoring import flow  # noqa: PLC0415 - as in an author's shell

    with collecting() as registry:

        @flow
        def f() -> None: ...

    assert len(registry.registrations) == 1
    with pytest.raises(DefinitionError):

        @flow
        def g() -> None: ...

    assert len(registry.registrations) == 1
