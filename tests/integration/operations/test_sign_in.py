"""Wrong passwords have to wait: from an address, for a name, never for hours, and never for who is known there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection, connections
from django.test import Client

from scheduler_app.models import Audit, SignIn
from scheduler_app.operations.sign_in import sign_in
from scheduler_app.rules.errors import NotAuthenticated, TooManyFailures
from scheduler_app.rules.sign_in import Limits
from tests.integration.api.conftest import PASSWORD, ana
from tests.together import together

if TYPE_CHECKING:
    from django.contrib.auth.models import User

__all__ = ["ana"]

pytestmark = pytest.mark.django_db(transaction=True)

HERE, THERE = "198.51.100.7", "203.0.113.9"


@pytest.fixture(autouse=True)
def limits(settings: Any) -> None:
    settings.SIGN_IN_LIMITS = Limits(window_s=300.0, own_max=3, wide_max=6)


def ask(password: str = "wrong", *, name: str = "ana", address: str = HERE) -> str:
    """What became of it."""
    try:
        sign_in(username=name, password=password, address=address)
    except TooManyFailures:
        return "waits"
    except NotAuthenticated:
        return "wrong"
    return "in"


def pass_by(seconds: float) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE sign_in SET at = at - make_interval(secs => %s)", [seconds])


def test_after_so_many_wrong_ones_the_right_one_waits_too_and_no_longer_than_the_window(
    ana: User,
) -> None:
    assert [ask() for _ in range(5)] == ["wrong"] * 3 + ["waits"] * 2
    with pytest.raises(TooManyFailures, match=r"Try again in 5 min\.") as refused:
        sign_in(username="ana", password=PASSWORD, address=HERE)
    assert 290 < int(str(refused.value.extra["retry_after_s"])) <= 300
    assert ask(PASSWORD, address=THERE) == "in", "from elsewhere it opens"
    pass_by(299)
    assert ask(PASSWORD) == "waits"
    pass_by(2)
    assert ask(PASSWORD) == "in", "what had to wait was not counted"


def test_a_right_one_takes_back_what_was_wrong_before(ana: User) -> None:
    for _ in range(4):
        assert [ask(), ask(), ask(PASSWORD)] == ["wrong", "wrong", "in"]
    assert SignIn.objects.count() == 1


def test_what_strangers_do_keeps_nobody_out_of_where_they_always_come_from(ana: User) -> None:
    assert ask(PASSWORD) == "in"
    spread = [ask(address=f"203.0.113.{number}") for number in range(8)]
    assert spread == ["wrong"] * 6 + ["waits"] * 2, "a name is not guessed from many addresses"
    many = [ask(name=f"user{number}") for number in range(8)]
    assert many == ["wrong"] * 6 + ["waits"] * 2, "nor many names from one"
    assert ask(PASSWORD) == "in", "ana is known here"
    assert ask(PASSWORD, address=THERE) == "waits"


@pytest.mark.parametrize(
    ("one", "other"),
    [("2001:db8::1", "2001:db8::ffff:2"), ("::ffff:198.51.100.7", HERE), ("", "no address")],
)
def test_addresses_of_one_network_count_together(ana: User, one: str, other: str) -> None:
    assert [ask(address=one), ask(address=other), ask(address=one)] == ["wrong"] * 3
    assert ask(PASSWORD, address=other) == "waits"


def test_a_name_counts_in_any_letters_and_whether_it_exists_or_not() -> None:
    assert [ask(name=name) for name in ("Nobody", "nobody", "NOBODY", "nobody")] == [
        *["wrong"] * 3,
        "waits",
    ]


def test_no_number_of_requests_at_a_time_gets_more_than_the_limit(ana: User) -> None:
    def guess(unused: object) -> str:
        del unused
        try:
            return ask()
        finally:
            connections.close_all()

    assert sorted(together([guess] * 8)) == ["waits"] * 5 + ["wrong"] * 3


def test_that_one_has_to_wait_is_audited_once(ana: User) -> None:
    for _ in range(6):
        ask()
    entry = Audit.objects.get(action="sign_in.throttle")
    assert (entry.actor, entry.object_kind, entry.object_id) == ("web", "sign_in", HERE)
    assert entry.after == {"account": "ana", "address": HERE, "window_s": 300.0}
    for _ in range(4):
        ask(name="my secret", address=THERE)
    assert Audit.objects.count() == 2
    assert "secret" not in str(Audit.objects.values()), "a password typed as a name is not kept"


def test_the_api_says_how_long_to_wait(ana: User) -> None:
    client = Client(REMOTE_ADDR=HERE)

    def token(password: str) -> Any:
        body = {"username": "ana", "password": password}
        return client.post("/auth/token", body, content_type="application/json")

    assert [token("wrong").status_code for _ in range(3)] == [401] * 3
    refused = token(PASSWORD)
    assert refused.status_code == 429
    assert refused["Content-Type"] == "application/problem+json"
    told = refused.json()
    assert told["code"] == "too_many_failures"
    assert int(refused["Retry-After"]) == told["retry_after_s"] > 290
    assert "Try again in 5 min." in told["detail"]


def test_the_page_says_how_long_to_wait(ana: User) -> None:
    client = Client(REMOTE_ADDR=HERE)
    form = {"username": "ana", "password": "wrong"}
    assert [client.post("/login/", form).status_code for _ in range(3)] == [200] * 3
    refused = client.post("/login/", {"username": "ana", "password": PASSWORD})
    assert refused.status_code == 429
    assert int(refused["Retry-After"]) > 290
    page = refused.content.decode()
    assert "Try again in 5 min." in page
    assert "do not fit together" not in page
    assert client.get("/runs/").status_code == 302, "nobody is signed in"
    pass_by(301)
    assert client.post("/login/", {"username": "ana", "password": PASSWORD}).status_code == 302
    assert client.get("/runs/").status_code == 200


def test_the_admin_has_no_door_of_its_own(ana: User) -> None:
    client = Client(REMOTE_ADDR=HERE)
    for answer in (client.get("/admin/login/?next=/admin/"), client.post("/admin/login/", {})):
        assert (answer.status_code, answer["Location"]) == (302, "/login/?next=/admin/")
    client.force_login(ana)
    assert client.get("/admin/login/").status_code == 403
