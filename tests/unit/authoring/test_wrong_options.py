"""Each option, given what it cannot be, is one fault that names the option, the line and the remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scheduler_app.authoring.faults import Fault, faults_of
from scheduler_app.authoring.faults import Place as AnyPlace
from scheduler_app.processes import bundles
from scheduler_app.rules.errors import DefinitionError

if TYPE_CHECKING:
    from pathlib import Path

HEAD = """\
from datetime import date, datetime, timedelta
from scheduler_app.authoring import *
@task
def a(ctx, x=1): ...
@task
def b(y): ...
@group
def g(z): return b(z)
"""
LINE = HEAD.count("\n") + 1  # the first of what comes after it

# option -> wrong values; the fault says "option=..." and the remedy names the option
OF_FLOWS = {
    "schedule": [
        "5",
        "[]",
        "{}",
        "True",
        "lambda: 1",
        "object()",
        "b'x'",
        "date(2026, 1, 1)",
        "['0 2 * * *', 5]",
        "[date(2026, 1, 1), '0 0 * * *']",
        "Schedule",
    ],
    "timezone": ["5", "None", "b'UTC'"],
    "start_date": ["5", "'2026-13-01'", "{}", "True"],
    "end_date": ["[]", "'x'"],
    "catchup": ["'yes'", "-1", "timedelta(-1)", "None", "[]"],
    "overlap": ["'maybe'", "3", "None"],
    "max_active_runs": ["'3'", "1.5", "None", "True", "10**20"],
    "max_active_tasks": ["0", "'x'", "None"],
    "max_active_tasks_per_flow": ["0", "-1"],
    "max_consecutive_failed_runs": ["'x'", "-2"],
    "deadline": ["'3h'", "0", "-1"],
    "run_timeout": ["'x'", "0"],
    "run_retry": ["3", "True"],
    "tags": ["[1]", "{'a': 1}", "['a' * 300]", "None", "['']"],
    "description": ["5"],
    "owner": ["5"],
    "params": [
        "[]",
        "5",
        "{1: 2}",
        "{'a': {1, 2}}",
        "{'': 1}",
        "{'x': float('nan')}",
        "{'x': Param(lambda: 1)}",
        "{'x': Param}",
        "{'x': datetime(2026, 1, 1)}",
        "{'x': 'a' * 2_000_000}",
    ],
    "on_failure_callback": [
        "5",
        "'x'",
        "lambda: 1",
        "a",
        "[5]",
        "lambda c: (yield)",
        "EmailNotifier",
    ],
    "on_success_callback": ["{}"],
    "flow_id": ["5", "''", "None", "'a b'", "'\\u202e'", "'a\\n'", "'.'", "'..'"],
}
OF_TASKS = {
    "retries": ["'3'", "1.5", "None", "10**10"],
    "retry_delay": ["'5s'", "None", "float('nan')"],
    "backoff": ["'x'", "-1", "None"],
    "max_retry_delay": ["'x'", "-1"],
    "jitter": ["'x'", "-1"],
    "retry_on": ["5", "[]", "'not a name!'", "[5]"],
    "fail_on": ["{}"],
    "retry_policies": ["[]", "{OSError: 5}", "{5: retry(retries=1)}"],
    "timeout": ["'x'", "-1", "0", "True"],
    "suspect_factor": ["0", "'x'"],
    "pool": ["5", "'a\\n'", "None"],
    "slots": ["'x'", "1.5"],
    "priority": ["'high'", "None"],
    "limit": ["5", "'k'", "[]", "[Limit('a', 1), Limit('a', 2)]", "Limit"],
    "max_active_per_flow": ["0", "'x'"],
    "max_active_per_run": ["0"],
    "queue": ["5", "''"],
    "trigger_rule": ["5", "None", "'ALL_SUCCESS'"],
    "depends_on_past": ["1", "'yes'"],
    "wait_for_downstream": ["1"],
    "doc": ["5"],
    "map_label": ["5"],
    "max_map_length": ["0", "'x'"],
    "on_execute_callback": ["5"],
    "on_retry_callback": ["'x'"],
    "on_skipped_callback": ["lambda a, b: 1"],
    "task_id": ["5", "''", "'a/b'", "'a\\n'", "'ä ö'", "'.'", "'..'"],
}


def faults(folder: Path, source: str) -> list[Fault]:
    (folder / "flows.py").write_text(HEAD + source, encoding="utf-8")
    try:
        return bundles.load_file(folder, "flows.py").faults()
    except DefinitionError as error:
        return faults_of(error, AnyPlace(file="", line=0))
    finally:
        bundles._shelf.clear()


@pytest.mark.parametrize(
    ("option", "value"), [(option, value) for option, given in OF_FLOWS.items() for value in given]
)
def test_a_wrong_option_of_a_flow_is_one_fault(tmp_path: Path, option: str, value: str) -> None:
    (told,) = faults(tmp_path, f"@flow({option}={value})\ndef f():\n    a()\n")
    assert f"{option}=" in told.message
    assert option in told.remedy
    assert (told.file, told.line) == (str(tmp_path / "flows.py"), LINE)


@pytest.mark.parametrize(
    ("option", "value"), [(option, value) for option, given in OF_TASKS.items() for value in given]
)
def test_a_wrong_option_of_a_task_is_one_fault(tmp_path: Path, option: str, value: str) -> None:
    (told,) = faults(tmp_path, f"@task({option}={value})\ndef t(): ...\n@flow\ndef f():\n    t()\n")
    assert f"{option}=" in told.message
    assert option in told.remedy
    assert (told.file, told.line) == (str(tmp_path / "flows.py"), LINE)


# what stands in the body of a flow -> words of the message, words of the remedy
BODIES = {
    # groups
    "group(5)": ("@group stands on 5", "on a def"),
    "with group('a b'): a()": ("group_id='a b'", "letters"),
    "with group(): a()": ("has no id", 'group("extract")'),
    "with group('x', foo=1): a()": ("no option 'foo'", "Known:"),
    "with group('x', retry=3): a()": ("retry=3", "GroupRetry"),
    "with group('x', retry=GroupRetry(max_attempts='x')): a()": ("max_attempts='x'", "whole"),
    "with group('x', compensate=5): a()": ("compensate=5", "without calling it"),
    "with group('x', compensate=b): a()": ("missing a required argument: 'y'", "It takes (y)"),
    "with group('x', prefix='no'): a()": ("prefix='no'", "True or False"),
    "with group('x', default_args={'retries': 'x'}): a()": ("retries='x'", "whole number"),
    "g()": ("missing a required argument: 'z'", "It takes (z)"),
    "g.map(5)": ("maps 'z' over 5", "Map over a list"),
    # mapping
    "b.map(5)": ("maps 'y' over 5", "Map over a list"),
    "b.map('abc')": ("'abc', a text", ".partial(...)"),
    "b.map(None)": ("over None", "an empty one"),
    "b.map(i for i in [1])": ("can be read once only", "list(...)"),
    "b.map({1, 2})": ("has no order", "sorted(...)"),
    "b.map()": ("maps over nothing", "at least one"),
    "b.map([object()])": ("is of type object", "values that JSON knows"),
    "b.map(range(10**9))": ("1,000,000,000 elements; the limit is 100,000", "less"),
    "b.map(list(range(200_000)))": ("the limit is", "Return it from a task"),
    "b.map(a().map(5))": ("given 5", "a function of one element"),
    "b.map(a().map(lambda p, q: 1))": ("does not take one argument", "of one element"),
    "b.map(zip_(a(), 5))": ("over 5", "Map over a list"),
    "b.map(zip_())": ("zips nothing", "zip_(names(), sizes())"),
    "b.expand(q=[1])": ("missing a required argument: 'y'", "Known: y"),
    "b.partial(y=1).expand(y=[1])": ("gets 'y' by .partial(...)", "Leave it out"),
    "b.partial(q=1).expand(y=[1])": ("unexpected keyword argument 'q'", "Known: y"),
    "b.expand_kwargs(5)": ("its arguments over 5", "Map over a list"),
    "b.expand_kwargs([1, 2])": ("maps over 1", "dicts such as"),
    "b.expand_kwargs([{'y': 1}, {'q': 1}])": ("missing a required argument: 'y'", "Known: y"),
    "a.expand(ctx=[1])": ("with ctx=", "Leave ctx out"),
    "x = b.map(a())\n    b.map(x) >> x": ("wait for each other", "Remove one"),
    # what is read once, or is not there yet
    "b(i for i in [1])": ("can be read once only", "list(...)"),
    "b(y=iter('ab'))": ("can be read once only", "inside the task"),
    "b(str(a()))": ("is made into text", "Pass it whole"),
    "b('%s' % a())": ("is made into text", "Pass it whole"),
    "if a() == 1: b(1)": ("is compared", "Pass it whole"),
    "b(a().rows)": ("AttributeError", "pass it whole"),
    "b(a() + 1)": ("TypeError", "pass it whole"),
    "b(int(a()))": ("TypeError", "pass it whole"),
    "b(sorted([a(), a()]))": ("TypeError", "pass it whole"),
    "p, q = a()": ("is looped over", "Pass it whole"),
    "b(*a())": ("is looped over", "Pass it whole"),
    "with a(): b(1)": ("neither setup nor teardown", ".as_setup()"),
    "a() >> {'x': a()}": ("stands beside >>", "a list of called tasks"),
    "5 >> a()": ("5 stands beside >>", "called task"),
    # setups and teardowns
    "a().as_setup().as_teardown()": ("is a setup already", "one role"),
    "a().as_teardown(fails_run='x')": ("fails_run='x'", "True or False"),
    # templates
    "b(Template(5))": ("no text", "Give a text"),
    "b(Template('{ds!r}'))": ("a conversion", "Take it out"),
    "b(Template('{params.x}'))": ("there is no 'params.x'", "'params'"),
    "b(Template('{}'))": ("there is no ''", "Known:"),
    "b(Template('{ds[x]}'))": ("ds has no keys", "Only params[...]"),
    "b(Template('{ds:%Y}'))": ("ds has a format ('%Y')", "logical_date"),
    # sensors
    "WaitForFile()": ("made without path", "WaitForFile(path=...)"),
    "WaitForFile('/x')": ("given '/x' by place", "WaitForFile(path='/x')"),
    "WaitForFile(path=5)": ("a text or a Path, not 5", "WaitForFile"),
    "WaitForFile(path='/x', mode='x')": ("mode='x'", "'defer'"),
    "WaitForFile(path='/x', poll_interval='1m')": ("poll_interval='1m'", "timedelta"),
    "WaitForFile(path='/x', poll_interval=0.01)": ("poll_interval=0:00:00.01", "WaitForFile"),
    "WaitForFile(path='/x', foo=1)": ("no option 'foo'", "Known:"),
    "WaitForHttp(url=5)": ("address, not 5", "WaitForHttp"),
    "WaitForHttp(url='ftp://x')": ("not 'ftp://x'", "WaitForHttp"),
    "WaitForHttp(url='http://x', statuses='ok')": ("a list of numbers", "WaitForHttp"),
    "WaitForSql(sql=5, connection='x')": ("sql, a text, not 5", "WaitForSql"),
    "WaitForSql(sql='select 1', connection=5)": ("connection, a text, not 5", "WaitForSql"),
    "WaitForTime()": ("takes one of at=, after= and after_interval=", "WaitForTime"),
    "WaitForTime(after='x')": ("after='x'", "Give after a timedelta"),
    "WaitForTime(after_interval=-1)": ("after_interval=-1", "a duration from 0 s"),
    "WaitForTime(at='soon')": ("'soon'", "WaitForTime"),
    "WaitForTime(at=datetime(2026, 1, 1))": ("with a time zone", "WaitForTime"),
    "WaitForTime(after=1, at='2026-01-01T00:00Z')": ("takes one of", "WaitForTime"),
    "WaitForEvent(key=5)": ("not 5", "WaitForEvent"),
    "WaitForRun(flow_id=5)": ("5 is no id of a flow", "WaitForRun"),
    "WaitForRun(flow_id='x', run_id='a b')": ("'a b' is not allowed", "WaitForRun"),
    "WaitForRun(flow_id='x', states=['done'])": ("states=['done']", "WaitForRun"),
    "WaitForRun(flow_id='x', states='success')": ("is no list of", "WaitForRun"),
    "WaitForRun(flow_id='x', logical_date='soon')": ("with a time zone", "WaitForRun"),
    # flows that trigger flows
    "trigger_flow(5)": ("5 is no flow", "Give a flow"),
    "trigger_flow('x', conf=5)": ("conf=5", "Give a dict"),
    "trigger_flow('x', conf={'a': object()})": ("has conf=", "JSON cannot hold"),
    "trigger_flow('x', wait='y')": ("wait='y'", "True or False"),
    "trigger_flow('x', if_exists='y')": ("if_exists='y'", "'skip'"),
    "trigger_flow('x', on_stop='y')": ("on_stop='y'", "'terminate'"),
    "trigger_flow('x', run_id='a b')": ("run_id='a b'", "A-Z a-z"),
    "trigger_flow('x', logical_date='soon')": ("logical_date='soon'", "with a time zone"),
    "trigger_flow('x', wait=True, states=['x'])": ("states=['x']", "failed and success"),
    "trigger_flow('x', foo=1)": ("no option 'foo'", "Known:"),
    # limits
    "a.override(limit=Limit('{nope}', 1))()": ("there is no 'nope'", "Use one of"),
    "a.override(limit=Limit('x', 0))()": ("slots=0", "whole number"),
    "a.override(limit=Limit('{params[q]}', 1))()": ("names parameter 'q'", "conf[q]"),
}


@pytest.mark.parametrize(("body", "said"), BODIES.items(), ids=BODIES.keys())
def test_what_is_wrong_in_a_body_is_one_fault(
    tmp_path: Path, body: str, said: tuple[str, str]
) -> None:
    (told,) = faults(tmp_path, f"@flow\ndef f():\n    {body}\n")
    assert said[0] in told.message
    assert said[1] in told.remedy
    last = LINE + 2 + body.count("\n")
    assert (told.file, told.line) in [(str(tmp_path / "flows.py"), n) for n in (LINE + 2, last)]


# what stands at the top of the file -> its line after the head, words of message and remedy
TOPS = {
    "f = flow(lambda: a())": (0, "'<lambda>', is no id of a flow", "flow_id=..."),
    "t = task(lambda: 1)\n@flow\ndef f():\n    t()": (3, "'<lambda>' is no id", "task_id=..."),
    "@flow(default_args=[])\ndef f():\n    a()": (0, "is no dict of options", "Write a dict"),
    "@flow(params={'x': Param(1, minimun=0)})\ndef f():\n    a()": (
        0,
        "no keyword 'minimun'",
        "'minimum'",
    ),
    "@flow(schedule='@daily')\ndef f():\n    b([Template('{params[nope]}')])": (
        2,
        "names parameter 'nope'",
        "params={'nope': ...}",
    ),
    "@flow\nasync def f():\n    a()": (0, "is async or yields", "plain def"),
    "@group\nasync def t(): a()": (0, "is async or yields", "plain def"),
    "@task\nasync def t(): yield 1\n@flow\ndef f():\n    t()": (0, "yields values", "a list"),
    "@task\ndef t(ctx, /): ...\n@flow\ndef f():\n    t()": (0, "by place only", "slash"),
    "@a.method\ndef m(ctx, event): yield\n@flow\ndef f():\n    a()": (0, "yields values", "a list"),
    "class S(Task):\n    def execute(self, ctx): yield\n@flow\ndef f():\n    S()": (
        1,
        "S.execute yields values",
        "a list",
    ),
    "class S(Sensor):\n    def poke(self): ...\n@flow\ndef f():\n    S()": (
        1,
        "S.poke takes (self)",
        "def poke(self, ctx)",
    ),
    "class S(Sensor):\n    def poke(self, ctx): yield\n@flow\ndef f():\n    S()": (
        1,
        "S.poke yields values",
        "a list",
    ),
    "class S(Task):\n    p: int\n    def execute(self, ctx): ...\n@flow\ndef f():\n    S(5)": (
        5,
        "S is given 5 by place",
        "S(p=5)",
    ),
    "class S(Task):\n    def __init__(self, **k):\n        raise ValueError('x')\n"
    "    def execute(self, ctx): ...\n@flow\ndef f():\n    S()": (
        2,
        "ValueError: x.",
        "into a task",
    ),
    "class K:\n    @task\n    @staticmethod\n    def m(): ...": (
        1,
        "which is no function",
        "a def",
    ),
    "@flow(schedule=Schedule('@daily', exclude=5))\ndef f():\n    a()": (
        0,
        "with exclude as a list of dates",
        "schedule=",
    ),
    "@flow(schedule='0 0 31 2 *')\ndef f():\n    a()": (0, "a day that never comes", "the month"),
    "@flow(schedule=timedelta(microseconds=1))\ndef f():\n    a()": (0, "every 1e-06 s", "1 s"),
    "for n in range(2):\n    @flow\n    def f(): a()": (1, "defined twice", "Rename"),
}


@pytest.mark.parametrize(("source", "told_as"), TOPS.items(), ids=TOPS.keys())
def test_what_is_wrong_at_the_top_of_a_file_is_one_fault(
    tmp_path: Path, source: str, told_as: tuple[int, str, str]
) -> None:
    (told,) = faults(tmp_path, source + "\n")
    line, message, remedy = told_as
    assert message in told.message
    assert remedy in told.remedy
    assert (told.file, told.line) == (str(tmp_path / "flows.py"), LINE + line)


def test_flows_that_are_made_in_a_loop_with_ids_of_their_own_are_all_there(tmp_path: Path) -> None:
    source = "for n in range(3):\n    @flow(flow_id=f'f{n}')\n    def f(): a()\n"
    assert faults(tmp_path, source) == []


def test_steps_are_found_among_others(tmp_path: Path) -> None:
    source = (
        "@flow\ndef f():\n    one, two = a(), a()\n    assert two in [one, two] and one != two\n"
    )
    assert faults(tmp_path, source) == []
