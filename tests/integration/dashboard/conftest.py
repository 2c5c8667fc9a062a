"""A scene in the database, and a reader who is signed in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from tests.integration.dashboard import scene as scenes

if TYPE_CHECKING:
    from tests.world import World


@pytest.fixture
def scene(world: World) -> scenes.Scene:
    """Records of every standing."""
    return scenes.build(world)


@pytest.fixture
def reader(transactional_db: None) -> Client:
    """A browser of a signed-in user, without scripts."""
    del transactional_db
    client = Client()
    client.force_login(get_user_model().objects.create_user("ana"))
    return client
