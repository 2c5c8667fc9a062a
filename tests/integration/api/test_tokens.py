"""``POST /auth/token`` and what its tokens open."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.test import Client
from django.utils import timezone

from scheduler_app.models import ApiToken, Audit
from tests.integration.api.conftest import PASSWORD

if TYPE_CHECKING:
    from django.contrib.auth.models import User

pytestmark = pytest.mark.django_db


def ask(client: Client, body: Any, address: str = "/auth/token") -> Any:
    return client.post(address, body, content_type="application/json")


def reads(token: str) -> int:
    return Client(headers={"Authorization": f"Bearer {token}"}).get("/api/v1/runs/").status_code


def test_a_name_and_its_password_get_a_token_that_opens_the_api(
    ana: User, stranger: Client
) -> None:
    answer = ask(stranger, {"username": "ana", "password": PASSWORD})
    assert answer.status_code == 201
    assert answer["Cache-Control"] == "no-store"
    token = answer.json()["access_token"]
    assert reads(token) == 200
    stored = ApiToken.objects.get()
    assert stored.user == ana
    assert stored.digest == hashlib.sha256(token.encode()).hexdigest()
    assert len(token) >= 43, "256 bits"
    assert Audit.objects.get().action == "token.issue"
    assert token not in str(Audit.objects.values())


@pytest.mark.parametrize(
    "body",
    [
        {"username": "ana", "password": "wrong"},
        {"username": "nobody", "password": PASSWORD},
        {"username": "ana", "password": PASSWORD + " "},
    ],
)
def test_a_wrong_name_or_password_gets_nothing(ana: User, stranger: Client, body: Any) -> None:
    answer = ask(stranger, body)
    assert answer.status_code == 401
    assert answer.json()["code"] == "not_authenticated"
    assert not ApiToken.objects.exists()


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({}, "username"),
        ({"username": "ana"}, "password"),
        ({"username": ["ana"], "password": PASSWORD}, "username"),
        ({"username": "a\x00", "password": PASSWORD}, "username"),
        ({"username": "ana", "password": PASSWORD, "is_superuser": True}, "is_superuser"),
        ("[]", "object"),
        ("{", "JSON"),
    ],
)
def test_a_bad_body_is_told(stranger: Client, body: Any, told: str) -> None:
    answer = ask(stranger, body)
    assert answer.status_code == 400
    assert told in answer.json()["detail"]


def test_a_token_is_asked_for_by_post(stranger: Client) -> None:
    assert stranger.get("/auth/token").status_code == 405


@pytest.mark.parametrize("token", ["", "x", "y" * 5000, "ä", "a b"])
def test_a_token_that_is_none_opens_nothing(db: None, token: str) -> None:
    assert reads(token) == 401


def test_a_wrong_token_is_not_saved_by_a_session(ana: User) -> None:
    client = Client(headers={"Authorization": "Bearer wrong"})
    client.force_login(ana)
    assert client.get("/api/v1/runs/").status_code == 401


def test_an_expired_token_opens_nothing_and_is_swept_by_the_next(
    ana: User, stranger: Client
) -> None:
    token = ask(stranger, {"username": "ana", "password": PASSWORD}).json()["access_token"]
    ApiToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert reads(token) == 401
    ask(stranger, {"username": "ana", "password": PASSWORD})
    assert ApiToken.objects.count() == 1


def test_a_new_password_ends_every_token(ana: User, stranger: Client) -> None:
    token = ask(stranger, {"username": "ana", "password": PASSWORD}).json()["access_token"]
    ana.set_password("another long password")
    ana.save()
    assert reads(token) == 401


def test_a_closed_account_ends_every_token(ana: User, stranger: Client) -> None:
    token = ask(stranger, {"username": "ana", "password": PASSWORD}).json()["access_token"]
    ana.is_active = False
    ana.save()
    assert reads(token) == 401
    assert ask(stranger, {"username": "ana", "password": PASSWORD}).status_code == 401


def test_the_session_of_the_pages_reads_and_writes_only_with_its_csrf_token(ana: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(ana)
    assert client.get("/api/v1/runs/").status_code == 200
    answer = client.post("/api/v1/flows/f/pause/", {}, content_type="application/json")
    assert answer.status_code == 403
    assert "CSRF" in answer.json()["detail"]


def test_a_token_is_over_once_it_is_revoked(api: Client, stranger: Client) -> None:
    assert stranger.post("/auth/token/revoke").status_code == 401
    assert api.get("/api/v1/runs/").status_code == 200
    assert api.post("/auth/token/revoke").status_code == 204
    assert api.get("/api/v1/runs/").status_code == 401
    assert Audit.objects.filter(action="token.revoke", actor="ana").count() == 1
