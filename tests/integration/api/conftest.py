"""Callers of the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.test import Client

from scheduler_app.operations.issue_token import issue_token

if TYPE_CHECKING:
    from django.contrib.auth.models import User

PASSWORD = "correct horse battery staple"


@pytest.fixture
def ana(django_user_model: type[User], settings: Any) -> User:
    # Passwords are not what these tests are about, and the real hasher is slow on purpose.
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    return django_user_model.objects.create_user(username="ana", password=PASSWORD)


@pytest.fixture
def bearer(ana: User) -> dict[str, str]:
    """The header of a caller who is logged in."""
    token = issue_token(username=ana.username, password=PASSWORD).token
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def api(bearer: dict[str, str]) -> Client:
    """A caller who is logged in."""
    return Client(headers=bearer)


@pytest.fixture
def stranger() -> Client:
    """A caller who is not."""
    return Client()
