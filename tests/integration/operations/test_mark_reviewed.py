"""Who has looked at a filtered record or a ghost, and what they made of it."""

from __future__ import annotations

import pytest

from scheduler_app.models import Audit, Reviewed
from scheduler_app.operations.mark_reviewed import mark_reviewed, unmark_reviewed
from scheduler_app.queries import ghosts, records
from scheduler_app.queries.filters import GhostFilter, RecordFilter
from scheduler_app.queries.list_filter import Lens
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.rules.errors import Conflict, InvalidInput, NotFound
from tests import factories

pytestmark = pytest.mark.django_db


def listed(*states: str) -> list[str]:
    asked = RecordFilter(filtered=Lens.ONLY, reviewed=states)
    return sorted(row.key for row in records.page(asked, EVERYTHING).rows)


def test_a_mark_has_a_name_a_time_and_a_note_and_the_lists_can_be_asked_for_it() -> None:
    attempt, other = factories.make_ghost_attempt(), factories.make_ghost_attempt()
    ghost, another = factories.make_ghost(), factories.make_ghost(subject="another")
    keys = [f"attempt:{attempt.pk}", f"ghost:{ghost.pk}"]
    plan = mark_reviewed(keys=keys, actor="ada", reason=" the double write was undone ")
    assert [one.key for one in plan.included] == keys
    row = records.one(EVERYTHING, keys[0])
    assert row.is_filtered, "a mark changes nothing about its standing"
    assert row.reviewed is not None
    assert (row.reviewed["by"], row.reviewed["note"]) == ("ada", "the double write was undone")
    assert listed("yes") == [keys[0]]
    assert listed("no") == [f"attempt:{other.pk}"]
    assert listed("yes", "no") == listed() == sorted([keys[0], f"attempt:{other.pk}"])
    seen = ghosts.page(GhostFilter(filtered=Lens.ALL, reviewed=("no",)), EVERYTHING)
    assert [one.id for one in seen.rows] == [another.pk]
    assert seen.counts.total == 1
    entry = Audit.objects.get(object_kind="ghost")
    assert (entry.action, entry.object_id, entry.actor) == ("mark_reviewed", str(ghost.pk), "ada")

    mark_reviewed(keys=keys[:1], actor="bob", reason="looked again")
    assert Reviewed.objects.get(key=keys[0]).actor == "bob"
    again = Audit.objects.filter(object_id=str(attempt.pk)).latest("id")
    assert again.before is not None
    assert again.before["by"] == "ada", "the audit keeps what stood there before"


def test_a_mark_is_taken_back_and_what_had_none_is_left_alone() -> None:
    attempt, other = factories.make_ghost_attempt(), factories.make_ghost_attempt()
    keys = [f"attempt:{one.pk}" for one in (attempt, other)]
    mark_reviewed(keys=keys[:1], actor="ada", reason="r")
    preview = unmark_reviewed(keys=keys, actor="ada", dry_run=True)
    assert (len(preview.included), len(preview.excluded)) == (1, 1)
    assert Reviewed.objects.count() == 1
    unmark_reviewed(keys=keys, actor="ada", reason="it came back")
    assert not Reviewed.objects.exists()
    assert Audit.objects.filter(action="unmark_reviewed").count() == 1


def test_a_current_record_an_unknown_one_and_a_missing_note_change_nothing() -> None:
    ghost = factories.make_ghost_attempt()
    current = factories.make_attempt()
    key = f"attempt:{ghost.pk}"
    with pytest.raises(Conflict, match="is current"):
        mark_reviewed(keys=[key, f"attempt:{current.pk}"], actor="ada", reason="r")
    for wrong in ("attempt:0", "ghost:77", "ghost:07", "ghost:x", "nothing", "a\x00b"):
        with pytest.raises(NotFound):
            mark_reviewed(keys=[key, wrong], actor="ada", reason="r")
    for keys in ([], [f"ghost:{number}" for number in range(201)]):
        with pytest.raises(InvalidInput, match="1 to 200"):
            mark_reviewed(keys=keys, actor="ada", reason="r")
    with pytest.raises(InvalidInput, match="reason is empty"):
        mark_reviewed(keys=[key], actor="ada")
    assert mark_reviewed(keys=[key], actor="ada", dry_run=True).dry_run
    assert not Reviewed.objects.exists()
    assert not Audit.objects.exists()
