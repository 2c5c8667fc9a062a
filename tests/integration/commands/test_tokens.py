"""``manage.py tokens``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.contrib.auth import get_user_model

from scheduler_app.operations.issue_token import issue_token
from scheduler_app.queries import api_tokens

if TYPE_CHECKING:
    from tests.integration.commands.conftest import Call

pytestmark = pytest.mark.django_db(transaction=True)

PASSWORD = "correct horse battery staple"


def test_tokens_are_listed_and_ended(call: Call) -> None:
    for name in ("ana", "ben"):
        get_user_model().objects.create_user(name, password=PASSWORD)
    mine = issue_token(username="ana", password=PASSWORD).token
    other = [issue_token(username="ben", password=PASSWORD).token for _ in range(2)]
    listed = call("tokens", "list", "--json").json["results"]
    assert [row["username"] for row in listed] == ["ben", "ben", "ana"]
    assert not any(mine in str(row) for row in listed)
    assert call("tokens", "revoke", "--reason", "r").code == 1
    assert call("tokens", "revoke", str(listed[0]["id"])).code == 1
    assert call("tokens", "revoke", "999999", "--reason", "r").code == 1
    assert call("tokens", "revoke", "--user", "ben", "--reason", "left").out == "2 revoked\n"
    assert [api_tokens.user_of(token) for token in other] == [None, None]
    assert api_tokens.user_of(mine) is not None
