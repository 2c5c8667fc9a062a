"""Variables as people change them: sealed, compared, told; and the keys under which secrets lie."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from scheduler_app.models import Audit, Variable, VariableChange
from scheduler_app.operations.variables import (
    delete_variable,
    import_variables,
    increment_variable,
    rotate_keys,
    set_variable,
)
from scheduler_app.processes import sealing
from scheduler_app.rules.errors import Conflict, InvalidInput, NotAllowed, NotFound

pytestmark = pytest.mark.django_db(transaction=True)

BY: dict[str, Any] = {"actor": "ana", "reason": "because"}
SECRET = "hunter2-hunter2"


def put(key: str, value: Any, **more: Any) -> None:
    set_variable(key=key, value=value, **BY, **more)


@pytest.fixture
def folder(settings: Any, tmp_path: Path) -> Path:
    """A data folder whose secret key is that of the installation."""
    settings.VARIABLE_KEYS = []
    settings.DATA_DIR = tmp_path
    settings.SECRET_KEY_IS_OWN = False
    settings.SECRET_KEY = "the secret key of an installation"
    return tmp_path


def test_a_change_says_who_when_why_and_what() -> None:
    put("limit", 1, description="rows")
    put("limit", {"rows": 2})
    row = Variable.objects.get(key="limit")
    assert (row.value, row.version, row.description, row.updated_by) == (
        {"rows": 2},
        2,
        "rows",
        "ana",
    )
    made, changed = VariableChange.objects.order_by("id")
    assert (made.action, made.before, made.after, made.reason) == ("created", None, 1, "because")
    assert (changed.action, changed.before, changed.after) == ("changed", 1, {"rows": 2})
    assert [a.action for a in Audit.objects.order_by("id")] == ["variable.set"] * 2
    told = {"version": 2, "is_secret": False, "description": "rows"}  # and no value
    assert Audit.objects.latest("id").after == told


def test_what_is_the_same_is_no_change() -> None:
    put("limit", 1)
    put("limit", 1)
    assert Variable.objects.get(key="limit").version == 1
    assert VariableChange.objects.count() == 1
    put("limit", True)
    assert Variable.objects.get(key="limit").version == 2


def test_a_reason_is_needed() -> None:
    with pytest.raises(InvalidInput, match="reason"):
        set_variable(key="a", value=1, actor="ana", reason=" ")
    assert not Variable.objects.exists()


def test_a_secret_lies_sealed_and_stands_nowhere_in_clear() -> None:
    put("token", SECRET, is_secret=True)
    put("token", SECRET + "2")
    delete_variable(key="token", **BY)
    put("token", SECRET, is_secret=True)
    row = Variable.objects.get(key="token")
    assert row.sealed is not None
    assert sealing.open_sealed("token", row.sealed) == SECRET
    everything = [list(VariableChange.objects.values()), list(Audit.objects.values())]
    assert SECRET not in str(everything) + str(Variable.objects.values())
    assert [c.before for c in VariableChange.objects.order_by("id")] == [None, "***", "***", None]


def test_one_that_becomes_a_secret_takes_its_history_with_it() -> None:
    put("token", SECRET)
    put("token", SECRET + "2")
    set_variable(key="token", is_secret=True, **BY)
    assert SECRET not in str(list(VariableChange.objects.values()))
    row = Variable.objects.get(key="token")
    assert row.value is None
    assert sealing.open_sealed("token", str(row.sealed)) == SECRET + "2"


def test_a_sealed_text_opens_for_its_own_variable_alone() -> None:
    sealed = sealing.seal("one", SECRET)
    with pytest.raises(sealing.CannotOpen, match="'other' cannot be opened"):
        sealing.open_sealed("other", sealed.text)


def test_compare_and_set_by_value_and_by_version() -> None:
    put("a", 1)
    put("a", 2, expected=1)
    with pytest.raises(Conflict, match="another value"):
        put("a", 3, expected=1)
    with pytest.raises(Conflict, match="version 2, not 1"):
        put("a", 3, expected_version=1)
    put("a", 3, expected_version=2)
    with pytest.raises(Conflict):
        put("b", 1, expected=0)
    put("b", 1, expected_version=0)
    assert dict(Variable.objects.values_list("key", "value")) == {"a": 3, "b": 1}


def test_numbers_are_counted_and_nothing_else_is() -> None:
    assert increment_variable(key="n", start=5, **BY).after.value == 6  # type: ignore[union-attr]
    put("word", "x")
    with pytest.raises(InvalidInput, match="only numbers"):
        increment_variable(key="word", **BY)


def test_what_is_not_there_cannot_be_deleted_or_changed() -> None:
    with pytest.raises(NotFound):
        delete_variable(key="a", **BY)
    with pytest.raises(NotFound):
        set_variable(key="a", value=1, must_exist=True, **BY)
    with pytest.raises(InvalidInput, match="needs a value"):
        set_variable(key="a", description="x", **BY)


def test_an_import_is_all_or_nothing() -> None:
    put("a", 1)
    given = {
        "a": 1,
        "b": {"value": 2, "description": "two"},
        "c": {"value": "x" * 9, "is_secret": True},
    }
    with pytest.raises(Conflict):
        import_variables(given=given, existing="fail", **BY)
    assert Variable.objects.count() == 1
    done = import_variables(given=given, **BY)
    assert (done.created, done.changed, done.kept) == (("b", "c"), (), ("a",))
    assert import_variables(given={"a": 9}, existing="skip", **BY).kept == ("a",)
    assert Variable.objects.get(key="a").value == 1
    with pytest.raises(InvalidInput):
        import_variables(given={"d": 1, " ": 2}, **BY)
    assert not Variable.objects.filter(key="d").exists()


def test_keys_are_rotated_while_others_go_on(folder: Path) -> None:
    """Sealed under what follows from the secret key; then under a key of its own; then a newer one."""
    for number in range(3):
        put(f"s{number}", f"{SECRET}{number}", is_secret=True)
    first = Variable.objects.get(key="s0").sealed_with
    rotated = rotate_keys(**BY)
    assert rotated.resealed == 3
    assert stat.S_IMODE((folder / sealing.FILE).stat().st_mode) == 0o600
    assert {v.sealed_with for v in Variable.objects.all()} == {rotated.key_name} != {first}
    assert {v.version for v in Variable.objects.all()} == {1}
    again = rotate_keys(drop_old=True, **BY)
    assert (again.resealed, again.dropped) == (3, 1)
    assert len((folder / sealing.FILE).read_text().split()) == 1
    for number in range(3):
        row = Variable.objects.get(key=f"s{number}")
        assert sealing.open_sealed(row.key, str(row.sealed)) == f"{SECRET}{number}"
    assert rotate_keys(new_key=False, **BY).resealed == 0


def test_keys_of_the_environment_are_rotated_by_whoever_sets_them(settings: Any) -> None:
    old, new = "the older key " * 4, "the newer key " * 4
    settings.VARIABLE_KEYS = [old]
    put("s", SECRET, is_secret=True)
    with pytest.raises(NotAllowed, match="put a new one in front"):
        rotate_keys(**BY)
    settings.VARIABLE_KEYS = [new, old]
    assert rotate_keys(new_key=False, **BY).resealed == 1
    settings.VARIABLE_KEYS = [new]
    assert sealing.open_sealed("s", str(Variable.objects.get(key="s").sealed)) == SECRET
    settings.VARIABLE_KEYS = [old]
    settings.SECRET_KEY_IS_OWN = True
    with pytest.raises(sealing.CannotOpen):
        sealing.open_sealed("s", str(Variable.objects.get(key="s").sealed))


def test_without_any_key_no_secret_is_kept(settings: Any, folder: Path) -> None:
    del folder
    settings.SECRET_KEY_IS_OWN = True
    with pytest.raises(sealing.NoKey, match="DAYLIGHT_VARIABLE_KEYS"):
        put("s", SECRET, is_secret=True)
    put("plain", 1)
    assert Variable.objects.count() == 1


def test_a_secret_from_before_secrets_were_sealed_is_sealed_by_a_rotation(folder: Path) -> None:
    del folder
    Variable.objects.create(
        key="old", value=SECRET, is_secret=True, updated_at="2026-01-01T00:00:00Z"
    )
    assert rotate_keys(**BY).resealed == 1
    row = Variable.objects.get(key="old")
    assert (row.value, sealing.open_sealed("old", str(row.sealed))) == (None, SECRET)
