"""``manage.py pools``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from scheduler_app.models import Audit, Pool
from scheduler_app.rules.states import TaskState
from tests.factories import make_task_instance

if TYPE_CHECKING:
    from tests.integration.commands.conftest import Call

pytestmark = pytest.mark.django_db

WHY = ("--reason", "more work")


def test_a_pool_is_made_changed_listed_and_deleted(call: Call) -> None:
    made = call("pools", "create", "etl", "--slots", "4", "--description", "nightly", *WHY)
    assert made.code == 0, made.err
    assert re.search(r"^etl +4 +0 +0 +4 +no +nightly", made.out, re.MULTILINE)
    changed = call("pools", "set", "etl", "--slots", "2", "--count-deferred", *WHY, "--json").json
    assert (changed["slots"], changed["include_deferred"]) == (2, True)
    assert changed["description"] == "nightly"
    listed = call("pools", "list")
    assert "2 pools, none filtered" in listed.out
    assert [row["name"] for row in call("pools", "list", "--json").json["results"]] == [
        "default",
        "etl",
    ]
    assert call("pools", "delete", "etl", *WHY).out == "Pool etl is gone.\n"
    assert not Pool.objects.filter(name="etl").exists()
    entries = Audit.objects.filter(object_kind="pool").order_by("id")
    assert [(one.action, one.actor, one.reason) for one in entries] == [
        (f"pool.{verb}", "ana", "more work") for verb in ("create", "change", "delete")
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "none"), "There is no pool none"),
        (("create", "default", "--slots", "1", *WHY), "There is a pool 'default' already"),
        (("create", "etl", "--slots", "-1", *WHY), "slots: -1 is not from 0"),
        (("create", " etl", "--slots", "1", *WHY), "A pool's name has"),
        (("create", "etl", "--slots", "1"), "reason"),
        (("set", "default", *WHY), "Say what changes"),
        (("set", "none", "--slots", "1", *WHY), "there is no pool 'none'"),
        (("delete", "default", *WHY), "The default pool cannot be deleted"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    call: Call, words: tuple[str, ...], said: str
) -> None:
    answer = call("pools", *words)
    assert (answer.code, answer.out) == (1, "")
    assert said in answer.err
    assert answer.err.count("\n") == 1


def test_a_pool_with_unfinished_tasks_stays(call: Call) -> None:
    call("pools", "create", "etl", "--slots", "1", *WHY)
    make_task_instance(pool="etl", state=TaskState.SCHEDULED)
    answer = call("pools", "delete", "etl", *WHY)
    assert answer.code == 1
    assert "1 unfinished task instances are in pool 'etl'" in answer.err


def test_arguments_that_are_none_are_explained(call: Call) -> None:
    assert call("pools", "create", "etl", "--slots", "many").code == 2
    assert call("pools", "create", "etl").code == 2
