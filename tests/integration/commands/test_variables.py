"""``manage.py variables``."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.models import Audit, Variable, VariableChange

if TYPE_CHECKING:
    from tests.integration.commands.conftest import Call

pytestmark = pytest.mark.django_db(transaction=True)

WHY = ("--reason", "for a test")
SECRET = "hunter2-hunter2"


def test_one_is_set_read_counted_and_deleted(call: Call) -> None:
    assert call("variables", "set", "n", "1", *WHY).out == "Variable n created.\n"
    assert call("variables", "set", "n", "1", *WHY).out == "Variable n was so already.\n"
    assert call("variables", "increment", "n", "--by", "4", *WHY).out == "5\n"
    assert call("variables", "get", "n").json == 5
    listed = call("variables", "list", "--contains", "n")
    assert listed.lines()[1][:3] == ["n", "5", "2"]
    assert "1 variables, none filtered" in listed.out
    history = call("variables", "history", "n", "--json").json["results"]
    assert [change["action"] for change in history] == ["changed", "created"]
    assert history[0]["actor"] == "ana"
    assert call("variables", "delete", "n", *WHY).out == "Variable n deleted.\n"
    gone = call("variables", "get", "n")
    assert gone.code == 1
    assert "There is no variable n" in gone.err
    assert call("variables", "get", "n", "--default", "[1]").json == [1]


def test_what_is_wrong_is_told(call: Call) -> None:
    no_reason = call("variables", "set", "a", "1")
    assert (no_reason.code, no_reason.err) == (1, "Say why: the reason is empty.\n")
    bad = call("variables", "set", "a", "yes", *WHY)
    assert bad.code == 2
    assert "needs quotes" in bad.err
    assert call("variables", "increment", "a", "--by", "x", *WHY).code == 2
    moved = call("variables", "set", "a", "1", "--expected-version", "3", *WHY)
    assert (moved.code, "version 0, not 3" in moved.err) == (1, True)
    assert not Variable.objects.exists()


def test_a_secret_is_shown_on_request_alone_and_that_is_audited(call: Call) -> None:
    call("variables", "set", "s", f'"{SECRET}"', "--secret", *WHY)
    assert call("variables", "get", "s").json == "***"
    assert "***" in call("variables", "list").out
    assert call("variables", "get", "s", "--reveal").code == 1
    assert call("variables", "get", "s", "--reveal", *WHY).json == SECRET
    assert Audit.objects.filter(action="variable.reveal", actor="ana").count() == 1


def test_all_go_out_and_come_in(call: Call, tmp_path: Path) -> None:
    call("variables", "set", "a", '{"x": 1}', "--description", "an a", *WHY)
    call("variables", "set", "s", f'"{SECRET}"', "--secret", *WHY)
    plain, whole = tmp_path / "plain.json", tmp_path / "whole.json"
    left = call("variables", "export", str(plain))
    assert "1 secrets left out" in left.err
    assert json.loads(plain.read_text()) == {"a": {"value": {"x": 1}, "description": "an a"}}
    assert call("variables", "export", str(whole), "--with-secrets", *WHY).code == 0
    assert stat.S_IMODE(whole.stat().st_mode) == 0o600
    Variable.objects.all().delete()
    done = call("variables", "import", str(whole), *WHY)
    assert done.out == "2 created, 0 changed, 0 left as they were.\n"
    assert Variable.objects.get(key="s").sealed is not None
    assert call("variables", "get", "s", "--reveal", *WHY).json == SECRET
    assert call("variables", "import", str(whole), "--existing", "fail", *WHY).code == 1
    whole.write_text("[]")
    assert call("variables", "import", str(whole), *WHY).code == 1
    assert call("variables", "import", str(tmp_path / "none"), *WHY).code == 1


def test_the_key_is_rotated(call: Call, settings: Any, tmp_path: Path) -> None:
    settings.VARIABLE_KEYS, settings.DATA_DIR = [], tmp_path
    settings.SECRET_KEY_IS_OWN = False
    call("variables", "set", "s", f'"{SECRET}"', "--secret", *WHY)
    done = call("variables", "rotate-key", "--json", *WHY).json
    assert done["resealed"] == 1
    assert Variable.objects.get().sealed_with == done["key_name"]
    assert call("variables", "get", "s", "--reveal", *WHY).json == SECRET
    assert VariableChange.objects.count() == 1
