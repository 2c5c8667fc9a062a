"""``manage.py leases``: a shard released, frozen and thawed by command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scheduler_app.models import Lease
from tests.factories import make_ghost, make_job

if TYPE_CHECKING:
    from tests.integration.commands.conftest import Call

pytestmark = pytest.mark.django_db


def test_a_shard_is_taken_from_its_holder_with_a_reason(call: Call) -> None:
    holder = make_job(hostname="host-8", pid=88)
    Lease.objects.filter(shard=3).update(holder=holder.pk, token=7)
    preview = call("leases", "release", "3", "--dry-run")
    assert "Shard 3, token 7, would be taken from host-8:88." in preview.out
    assert call("leases", "release", "3").code == 1
    stale = call("leases", "release", "3", "--token", "6", "--reason", "r")
    assert (stale.code, "changed its leader" in stale.err) == (1, True)
    assert Lease.objects.get(shard=3).holder == holder.pk
    answer = call("leases", "release", "3", "--reason", "stuck", "--json")
    assert (answer.code, answer.json["token"]) == (0, 7)
    assert Lease.objects.get(shard=3).holder is None
    again = call("leases", "release", "3", "--reason", "stuck")
    assert (again.code, "Nobody holds shard 3" in again.err) == (1, True)


def test_a_shard_is_frozen_and_thawed(call: Call) -> None:
    assert call("leases", "freeze", "3", "--reason", "look first").code == 0
    assert call("leases", "freeze", "3", "--reason", "again").code == 1
    assert call("leases", "thaw", "3", "--reason", "done").code == 0
    assert call("leases", "thaw", "3", "--reason", "again").code == 1


def test_a_ghost_is_marked_as_reviewed_by_command(call: Call) -> None:
    ghost = make_ghost()
    assert call("ghosts", "reviewed", f"ghost:{ghost.pk}").code == 1, "not without a note"
    answer = call("ghosts", "reviewed", f"ghost:{ghost.pk}", "--reason", "it is ours")
    assert (answer.code, f"ghost {ghost.pk}: reviewed." in answer.out) == (0, True)
    preview = call("ghosts", "unreviewed", f"ghost:{ghost.pk}", "--dry-run", "--json")
    assert "it is ours" in preview.json["included"][0]["effect"]
    missing = call("ghosts", "reviewed", "ghost:999", "--reason", "r")
    assert (missing.code, "There is no record" in missing.err) == (1, True)
