from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from scheduler_app.launch import prepare

pytestmark = pytest.mark.django_db


def test_a_schema_of_this_code_is_left_as_it_is() -> None:
    before = MigrationRecorder(connection).applied_migrations()
    prepare.migrate()
    assert MigrationRecorder(connection).applied_migrations().keys() == before.keys()
    assert prepare.unknown_migrations() == []


def test_a_schema_newer_than_the_code_is_refused_with_the_name_of_what_is_unknown() -> None:
    MigrationRecorder(connection).record_applied("scheduler_app", "9999_of_tomorrow")
    with pytest.raises(prepare.SchemaIsNewer, match=r"scheduler_app\.9999_of_tomorrow is unknown"):
        prepare.migrate()


def test_migrations_of_an_application_that_is_not_here_are_no_obstacle() -> None:
    MigrationRecorder(connection).record_applied("somebody_elses", "0001_initial")
    assert prepare.unknown_migrations() == []


def test_the_administrator_is_made_once_and_keeps_a_password_that_was_changed() -> None:
    assert prepare.make_administrator("first", replace=False)
    user = User.objects.get(username="admin")
    assert user.is_superuser
    assert user.is_staff
    user.set_password("changed by the person")
    user.save()
    assert not prepare.make_administrator("first", replace=False)
    assert User.objects.get(username="admin").check_password("changed by the person")


def test_a_password_that_is_given_replaces_the_one_that_was() -> None:
    prepare.make_administrator("first", replace=True)
    assert not prepare.make_administrator("second", replace=True)
    assert User.objects.get(username="admin").check_password("second")
