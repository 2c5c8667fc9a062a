"""An attempt with its result, its error and its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests import factories

if TYPE_CHECKING:
    from django.test import Client

pytestmark = pytest.mark.django_db


def test_result_and_error_come_with_one_attempt_and_not_with_lists(api: Client) -> None:
    attempt = factories.make_attempt(
        state="ended", result={"rows": 3}, error={"type": "E", "message": "m", "traceback": "t"}
    )
    one = api.get(f"/api/v1/attempts/{attempt.id}/").json()
    assert one["result"] == {"rows": 3}
    assert one["error"]["type"] == "E"
    row = api.get("/api/v1/attempts/").json()["results"][0]
    assert {"result", "error"}.isdisjoint(row)


def test_a_log_is_read_in_parts(api: Client) -> None:
    attempt = factories.make_attempt()
    factories.make_log(attempt, b"<b>one</b>\n", b"\xfftwo\n")
    address = f"/api/v1/attempts/{attempt.id}/log/"
    answer = api.get(f"{address}?limit=5")
    assert answer.content == b"<b>on"
    assert answer["Content-Type"] == "text/plain; charset=utf-8"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["X-Daylight-Next-Offset"] == "5"
    assert answer["X-Daylight-Size"] == "16"
    assert answer["X-Daylight-Ended"] == "false"
    assert api.get(f"{address}?offset=5").content == b"e</b>\n\xfftwo\n"
    assert api.get(f"{address}?offset=-4").content == b"two\n"


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "offset=x", "from=3", f"limit={10**9}"])
def test_a_bad_part_of_a_log_is_told(api: Client, query: str) -> None:
    attempt = factories.make_attempt()
    answer = api.get(f"/api/v1/attempts/{attempt.id}/log/?{query}")
    assert answer.status_code == 400
    assert answer.json()["parameter"] == query.split("=", maxsplit=1)[0]


def test_nobody_reads_a_log_without_a_login(stranger: Client) -> None:
    attempt = factories.make_attempt()
    assert stranger.get(f"/api/v1/attempts/{attempt.id}/log/").status_code == 401
