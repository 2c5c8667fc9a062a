"""Every list of the command line: filters, order, pages and counts, for people and for scripts."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import get_commands, load_command_class

from scheduler_app.models import Variable
from scheduler_app.operations.connections import set_connection
from scheduler_app.operations.issue_token import issue_token
from scheduler_app.operations.key_limits import set_limit
from scheduler_app.operations.pools import create_pool
from scheduler_app.operations.variables import set_variable
from tests import factories

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.commands.conftest import Call

pytestmark = pytest.mark.django_db

WHY: dict[str, Any] = {"actor": "ana", "reason": "for a test"}
NEXT = re.compile(r"--cursor=(\S+)")


def _variables() -> None:
    for key in ("a", "b", "c"):
        set_variable(key=key, value=1, **WHY)


def _history() -> None:
    for value in range(3):
        set_variable(key="a", value=value, **WHY)


def _connections() -> None:
    for key in ("a", "b", "c"):
        set_connection(connection_id=key, conn_type="http", **WHY)


def _pools() -> None:
    for name in ("a", "b"):  # beside the default one
        create_pool(name=name, slots=1, **WHY)


def _limits() -> None:
    for key in ("a", "b", "c"):
        set_limit(key=key, slots=1, **WHY)


def _jobs() -> None:
    for _ in range(3):
        factories.make_job()


def _flows() -> None:
    for name in ("a", "b", "c"):
        factories.make_flow(flow_id=name)


def _runs() -> None:
    flow = factories.make_flow(flow_id="nightly")
    for number in range(3):
        factories.make_run(flow=flow, run_key=f"r{number}")


def _take_overs() -> None:
    attempt = factories.make_attempt()
    for token in (2, 4, 6):
        factories.make_take_over(attempt=attempt, new_token=token)


# The command, the rows that it is to list, and a filter of the API that keeps none of them.
LISTS: dict[str, tuple[tuple[str, ...], Callable[[], None], str]] = {
    "variables": (("variables", "list"), _variables, "key=zzz"),
    "history": (("variables", "history", "a"), _history, "actor=zzz"),
    "connections": (("connections", "list"), _connections, "conn_type=zzz"),
    "pools": (("pools", "list"), _pools, "name=zzz"),
    "limits": (("limits", "list"), _limits, "key=zzz"),
    "jobs": (("jobs", "list"), _jobs, "hostname=zzz"),
    "flows": (("flows", "list"), _flows, "owner=zzz"),
    "runs": (("flows", "runs", "nightly"), _runs, "state=failed"),
    "take-overs": (("leases", "take-overs"), _take_overs, "shard=4000"),
}


# What is listed is a setting, and all of it.
WITHOUT_PAGES = {"notifiers"}


def test_every_list_that_there_is_takes_filters_an_order_and_pages() -> None:
    found = set()
    for name, app in get_commands().items():
        if app != "scheduler_app.management" and not str(app).startswith("scheduler_app"):
            continue
        parser = load_command_class(str(app), name).create_parser("manage.py", name)
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction) and "list" in action.choices:
                options = action.choices["list"]._option_string_actions
                if name not in WITHOUT_PAGES:
                    assert {"--where", "--order", "--limit", "--cursor", "--json"} <= options.keys()
                found.add(name)
    assert found >= {"flows", "jobs", "pools", "variables", "connections", "tokens", "reviews"}


@pytest.mark.parametrize("name", LISTS)
def test_it_is_read_page_by_page_with_its_counts(call: Call, name: str) -> None:
    words, fill, _ = LISTS[name]
    fill()
    whole = call(*words, "--json").json
    assert sorted(whole) == ["counts", "next_cursor", "results"]
    assert (len(whole["results"]), whole["next_cursor"]) == (3, None)
    assert whole["counts"]["total"] == 3
    first = call(*words, "--json", "--limit", "2").json
    assert first["counts"] == whole["counts"], "of all, not of the page"
    rest = call(*words, "--json", "--limit", "2", f"--cursor={first['next_cursor']}").json
    assert rest["next_cursor"] is None
    assert first["results"] + rest["results"] == whole["results"]
    told = call(*words, "--limit", "2").out
    assert "3 " in told.splitlines()[-2], "how many there are"
    found = NEXT.search(told)
    assert found is not None
    assert "2 are on this page" in told
    assert call(*words, "--json", f"--cursor={found[1]}").json["results"] == rest["results"]
    assert "--cursor" not in call(*words).out


@pytest.mark.parametrize("name", LISTS)
def test_it_takes_the_filters_of_the_api(call: Call, name: str) -> None:
    words, fill, nothing = LISTS[name]
    fill()
    none = call(*words, "--json", "--where", nothing).json
    assert (none["results"], none["counts"]["total"]) == ([], 0)
    unknown = call(*words, "--where", "colour=red")
    assert unknown.code == 1
    assert "colour: no such parameter of this list. It knows:" in unknown.err
    assert nothing.partition("=")[0] in unknown.err
    assert call(*words, "--where", "colour").code == 2
    bad = call(*words, "--cursor", "nonsense")
    assert (bad.code, bad.out) == (1, "")
    assert "cursor" in bad.err
    assert call(*words, "--order", "colour").code == 1


def test_a_filter_may_be_given_again_and_wins_over_an_option(call: Call) -> None:
    _variables()
    both = call("variables", "list", "--json", "--where", "key=a", "--where", "key=b").json
    assert [row["key"] for row in both["results"]] == ["a", "b"]
    with_order = call("variables", "list", "--json", "--where", "q=", "--order=-key").json
    assert [row["key"] for row in with_order["results"]] == ["c", "b", "a"]
    assert Variable.objects.count() == 3


def test_tokens_are_listed_by_user_and_page(call: Call, django_user_model: type) -> None:
    for name in ("ana", "ben"):
        django_user_model.objects.create_user(name, password="pw-of-a-test")  # type: ignore[attr-defined] # a user model
        for _ in range(2):
            issue_token(username=name, password="pw-of-a-test")
    listed = call("tokens", "list", "--json", "--user", "ana", "--limit", "1").json
    assert [row["username"] for row in listed["results"]] == ["ana"]
    assert listed["counts"]["total"] == 2
    assert listed["next_cursor"]
    assert call("tokens", "list", "--json").json["counts"]["total"] == 4
