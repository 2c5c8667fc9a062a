"""Logs by byte offset."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from django.utils import timezone

from scheduler_app.queries import logs
from scheduler_app.queries.scope import EVERYTHING, NOTHING
from scheduler_app.rules import errors
from tests import factories

pytestmark = pytest.mark.django_db

TEXT = b"first line\n\xff\x00binary\nsecond line\n"


@pytest.fixture
def attempt_id() -> UUID:
    attempt = factories.make_attempt()
    factories.make_log(attempt, TEXT[:4], TEXT[4:15], TEXT[15:])
    return attempt.id


@pytest.mark.parametrize("limit", [1, 3, 7, len(TEXT), 1000])
def test_parts_of_any_size_make_the_whole(attempt_id: UUID, limit: int) -> None:
    offset, whole = 0, b""
    for _ in range(len(TEXT) + 1):
        page = logs.read_log(EVERYTHING, attempt_id, offset, limit)
        assert page.size == len(TEXT)
        assert len(page.data) <= limit
        assert page.next_offset == offset + len(page.data)
        whole += page.data
        offset = page.next_offset
        if offset == page.size:
            break
    assert whole == TEXT


@pytest.mark.parametrize("start", range(len(TEXT) + 2))
def test_any_offset_is_a_beginning(attempt_id: UUID, start: int) -> None:
    assert logs.read_log(EVERYTHING, attempt_id, start).data == TEXT[start:]


def test_a_negative_offset_counts_from_the_end(attempt_id: UUID) -> None:
    assert logs.read_log(EVERYTHING, attempt_id, -6).data == TEXT[-6:]
    assert logs.read_log(EVERYTHING, attempt_id, -6000).data == TEXT


def test_a_log_ends_a_while_after_its_attempt() -> None:
    ended = {
        ago: factories.make_attempt(
            state="ended", ended_at=timezone.now() - timedelta(seconds=ago)
        ).id
        for ago in (0, 60)
    }
    running = factories.make_attempt().id
    assert not logs.read_log(EVERYTHING, running).ended
    assert not logs.read_log(EVERYTHING, ended[0]).ended, "its last chunk may be on its way"
    assert logs.read_log(EVERYTHING, ended[60]).ended


def test_an_attempt_that_is_not_there_has_no_log(attempt_id: UUID) -> None:
    with pytest.raises(errors.NotFound):
        logs.read_log(EVERYTHING, UUID(int=5))
    with pytest.raises(errors.NotFound):
        logs.read_log(NOTHING, attempt_id)


@pytest.mark.parametrize("limit", [0, -1, 5_000_000])
def test_a_part_has_a_size(attempt_id: UUID, limit: int) -> None:
    with pytest.raises(errors.InvalidInput, match="limit"):
        logs.read_log(EVERYTHING, attempt_id, 0, limit)
