"""Topics: which there are, and who may follow them."""

from __future__ import annotations

from uuid import UUID

import pytest

from scheduler_app.queries import topics
from scheduler_app.queries.scope import EVERYTHING, NOTHING, Scope
from scheduler_app.rules import errors
from tests import factories

ALL = {"home", "flows", "runs", "leases", "run:1", "ti:2", "flow:ünï.co-de", f"log:{UUID(int=3)}"}


@pytest.mark.parametrize("topic", sorted(ALL))
def test_what_is_a_topic(topic: str) -> None:
    assert topics.check(topic) == topic


@pytest.mark.parametrize(
    "topic", ["", "run", "run:", "run:-1", "run:1.5", "home:1", "flow:a/b", "log:1", "x:1", 5, None]
)
def test_what_is_none(topic: object) -> None:
    with pytest.raises(errors.InvalidInput, match="There are: "):
        topics.check(topic)


@pytest.mark.django_db
def test_a_reader_follows_what_the_reader_may_see() -> None:
    mine, other = (factories.make_attempt() for _ in range(2))
    asked = {"home", "leases"}
    for attempt in (mine, other):
        flow_id = attempt.run.flow_id if attempt.run else ""
        asked |= {f"run:{attempt.run_id}", f"ti:{attempt.ti_id}", f"log:{attempt.id}"}
        asked |= {f"attempt:{attempt.id}", f"flow:{flow_id}"}
    assert mine.run is not None
    narrow = Scope(flow_ids=frozenset({mine.run.flow_id}), sees_shared=False)
    assert topics.visible(EVERYTHING, asked) == asked
    assert topics.visible(NOTHING, asked) == frozenset()
    assert topics.visible(narrow, asked) == {
        "home",
        f"run:{mine.run_id}",
        f"ti:{mine.ti_id}",
        f"log:{mine.id}",
        f"attempt:{mine.id}",
        f"flow:{mine.run.flow_id}",
    }
