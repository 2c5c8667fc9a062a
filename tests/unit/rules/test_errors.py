from __future__ import annotations

import pickle

import pytest

from scheduler_app.rules import errors
from scheduler_app.rules.errors import SchedulerError

ALL: list[type[SchedulerError]] = [SchedulerError, *SchedulerError.__subclasses__()]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_an_error_crosses_a_process_whole(kind: type[SchedulerError]) -> None:
    error = kind("what is wrong", field="schedule", limit=3)
    twin = pickle.loads(pickle.dumps(error))
    assert type(twin) is kind
    assert (str(twin), twin.extra) == ("what is wrong", {"field": "schedule", "limit": 3})


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_an_error_without_a_message_says_what_its_class_says(kind: type[SchedulerError]) -> None:
    assert str(kind()) == (kind.__doc__ or "").splitlines()[0]


def test_each_kind_of_error_has_a_code_of_its_own() -> None:
    codes = [kind.code for kind in ALL]
    assert len(set(codes)) == len(codes)
    assert errors.NotFound.code == "not_found"
