"""The same lens on every list there is, over one database that has rows of every kind."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from scheduler_app.models import TaskInstance
from scheduler_app.queries import (
    attempts,
    filters,
    lens,
    newest,
    nouns,
    run_attempts,
    task_instances,
)
from scheduler_app.queries.list_filter import Lens, ListFilter
from scheduler_app.queries.scope import EVERYTHING, NOTHING
from tests import factories
from tests.emptying import restore_first_rows
from tests.integration.queries.test_lens import everything, fill

NOUNS: list[tuple[lens.Noun[Any], type[ListFilter]]] = list(nouns.NOUNS.values())
WITH_STANDING = [noun for noun in NOUNS if issubclass(noun[0].row, lens.Standing)]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("filled")]


@pytest.fixture(scope="module")
def filled(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The rows are there for every test of this module; what a test adds goes with it."""
    del django_db_setup
    with django_db_blocker.unblock(), transaction.atomic():
        restore_first_rows()
        fill()
        yield
        transaction.set_rollback(True)


@pytest.mark.parametrize(("noun", "kind"), NOUNS, ids=lambda one: getattr(one, "name", ""))
def test_the_statement_of_a_page_is_made_once_for_each_list_and_reader(
    noun: lens.Noun[Any], kind: type[ListFilter]
) -> None:
    lens._reading.cache_clear()  # other tests have asked, too
    asked = kind(filtered=Lens.ALL)
    first = lens.page(noun, asked, EVERYTHING)
    made = lens._reading.cache_info().misses
    assert lens.page(noun, kind(filtered=Lens.ALL), EVERYTHING) == first
    assert lens._reading.cache_info().misses == made
    assert lens.page(noun, asked, NOTHING).counts.total == 0
    assert lens._reading.cache_info().misses > made


@pytest.mark.parametrize(("noun", "kind"), NOUNS, ids=lambda value: getattr(value, "name", ""))
def test_the_three_views_of_a_list_agree_with_its_counts(
    noun: lens.Noun[Any], kind: type[ListFilter]
) -> None:
    views = {view: lens.page(noun, kind(filtered=view, limit=500), EVERYTHING) for view in Lens}
    counts = views[Lens.CURRENT].counts
    assert all(view.counts == counts for view in views.values())
    assert counts.exact
    assert len(views[Lens.CURRENT].rows) == counts.shown
    assert len(views[Lens.ONLY].rows) == counts.filtered == sum(counts.by_reason.values())
    assert len(views[Lens.ALL].rows) == counts.total == counts.shown + counts.filtered
    assert lens.counts(noun, kind(), EVERYTHING) == counts


@pytest.mark.parametrize(
    ("noun", "kind"), WITH_STANDING, ids=lambda value: getattr(value, "name", "")
)
def test_a_filtered_row_says_why_and_a_current_one_says_nothing(
    noun: lens.Noun[Any], kind: type[ListFilter]
) -> None:
    if noun is run_attempts.NOUN or noun is task_instances.NOUN:
        run = factories.make_run()
        ti = factories.make_task_instance(run=run)
        TaskInstance.objects.filter(id=ti.id).update(
            filter_code="removed_from_flow", filtered_at=factories.at(1), filter_detail={}
        )
        run.attempts_of_run.update(
            filter_code="superseded_by_run_attempt", filtered_at=factories.at(1), filter_detail={}
        )
    filtered = lens.page(noun, kind(filtered=Lens.ONLY), EVERYTHING).rows
    assert filtered
    for row in filtered:
        assert row.is_filtered
        assert row.filter_code
        assert row.filtered_at
        assert row.filter_reason != row.filter_code, "a sentence, from the table of reasons"
        assert row.filter_chip
    for row in lens.page(noun, kind(), EVERYTHING).rows:
        assert not row.is_filtered
        assert (row.filter_reason, row.filtered_at, row.filter_detail) == (None, None, None)
        assert row.filter_chip == ""


def test_a_reason_narrows_the_filtered_half_and_no_count() -> None:
    whole = lens.page(
        attempts.NOUN, filters.AttemptFilter(filtered=Lens.ALL, limit=500), EVERYTHING
    )
    for view in (Lens.ONLY, Lens.ALL):
        asked = filters.AttemptFilter(filtered=view, why=("ghost_no_record",), limit=500)
        page = lens.page(attempts.NOUN, asked, EVERYTHING)
        assert page.counts == whole.counts
        aside = [row.filter_code for row in page.rows if row.is_filtered]
        assert aside == ["ghost_no_record"]
        assert len(page.rows) == lens.rows_in(page.counts, asked)


FOUND_ASIDE = [(noun, kind) for noun, kind in NOUNS if kind.KNOWN_ASIDE]


@pytest.mark.parametrize(("noun", "kind"), FOUND_ASIDE, ids=lambda one: getattr(one, "name", ""))
def test_what_was_set_aside_is_the_same_however_it_is_found(
    noun: lens.Noun[Any], kind: type[ListFilter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the order of the list, and by the index over what was set aside, near its end and beyond."""
    aside = {
        "filter_code": "removed_from_flow",
        "filtered_at": factories.at(1),
        "filter_detail": {},
    }
    if noun is run_attempts.NOUN or noun is task_instances.NOUN:
        some = noun.model._default_manager.order_by("id").values("id")[1::2]
        noun.model._default_manager.filter(id__in=[one["id"] for one in some]).update(**aside)
    whole = everything(noun, kind(filtered=Lens.ALL))
    assert any(row.is_filtered for row in whole)
    narrowed: list[dict[str, Any]] = [{}, {"why": (whole_code(whole),)}]
    for name in kind.KNOWN_ASIDE:
        choices = kind.parameters()[name].choices
        seen = {getattr(row, name) for row in whole} - {None}
        values = [value for value in seen if not choices or value in choices]
        narrowed += [{name: (value,)} for value in values[:2]]
        narrowed += [{name: (choices[-1] if choices else 900 if name in NUMBERS else "none",)}]
    asked = [
        kind(filtered=view, order=order, limit=3, **given)
        for given in narrowed
        for view in (Lens.ALL, Lens.ONLY)
        for order in ("id", "-id")
    ]
    with monkeypatch.context() as without:
        without.setattr(ListFilter, "is_found_aside", False)
        wanted = [everything(noun, each) for each in asked]
    lens._reading.cache_clear()
    monkeypatch.setattr(newest, "NEAR_ROWS", 5)
    for each, rows in zip(asked, wanted, strict=True):
        assert everything(noun, each) == rows, each
    assert sum(each.is_found_aside for each in asked) > len(asked) / 2
    lens._reading.cache_clear()


NUMBERS = {"shard", "map_index"}


def whole_code(rows: list[Any]) -> str:
    """A reason that one of these rows has."""
    code: str = next(row.filter_code for row in rows if row.is_filtered)
    return code


ORDERS = [
    (noun, kind, sign + order)
    for noun, kind in NOUNS
    for order, sign in itertools.product(kind.ORDERS, ("", "-"))
]


@pytest.mark.parametrize(
    ("noun", "kind", "order"), ORDERS, ids=[f"{noun.name}:{order}" for noun, _, order in ORDERS]
)
def test_pages_in_any_order_have_each_row_once(
    noun: lens.Noun[Any], kind: type[ListFilter], order: str
) -> None:
    whole = lens.page(noun, kind(filtered=Lens.ALL, order=order, limit=500), EVERYTHING).rows
    paged = everything(noun, kind(filtered=Lens.ALL, order=order, limit=3))
    key = noun.key
    assert [getattr(row, key) for row in paged] == [getattr(row, key) for row in whole]
    column = order.removeprefix("-")
    known = [value for row in whole if (value := getattr(row, column)) is not None]
    if known and not isinstance(known[0], str):  # texts are ordered by the database's collation
        assert known == sorted(known, reverse=order.startswith("-"))
    unknown = [getattr(row, column) is None for row in whole]
    assert unknown == sorted(unknown), "rows without a value come last"


@pytest.mark.parametrize(("noun", "kind"), NOUNS, ids=lambda value: getattr(value, "name", ""))
def test_a_list_is_one_statement_however_many_rows_it_has(
    noun: lens.Noun[Any], kind: type[ListFilter]
) -> None:
    with CaptureQueriesContext(
        connection,
    ) as captured:
        lens.page(noun, kind(limit=500, filtered=Lens.ALL), EVERYTHING)
    # Records that have not come to anything yet have no time, and follow on those that have one.
    assert len(captured) == (2 if noun.name == "records" else 1)


@pytest.mark.parametrize(("noun", "kind"), NOUNS, ids=lambda value: getattr(value, "name", ""))
def test_nobody_sees_nothing(noun: lens.Noun[Any], kind: type[ListFilter]) -> None:
    page = lens.page(noun, kind(filtered=Lens.ALL), NOTHING)
    assert (page.rows, page.counts.total) == ((), 0)
