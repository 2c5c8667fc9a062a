"""Every page: well formed, named, countable, and honest about what it leaves out."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import resolve

from scheduler_app.models import Attempt, TaskInstance
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.queries.why import why_of
from tests.integration.dashboard.pages import ROWS_OF_LIST, Page, every_page, lists, with_lens

if TYPE_CHECKING:
    from django.test import Client

    from tests.integration.dashboard.scene import Scene

QUERIES_MAX = 14  # one of them counts the open incidents for the top bar
# html5lib does not know these: it reads older HTML than browsers do.
HARMLESS = re.compile(r"unexpected-self-closing|unexpected-solidus")


def test_every_page_is_well_formed_with_and_without_filtered(scene: Scene, reader: Client) -> None:
    for address in every_page(scene):
        for asked in (address, with_lens(address, "1")):
            page = Page(reader, asked)
            assert page.response.status_code == 200, asked
            assert [f for f in page.faults if not HARMLESS.search(f)] == [], asked
            assert len(list(page.all("h1"))) == 1, asked
            assert all(list(table.iter("caption")) for table in page.all("table")), asked
            ids = Counter(e.get("id") for e in page.root.iter() if e.get("id"))
            assert [name for name, number in ids.items() if number > 1] == [], asked
            for element in page.root.iter():
                attributes = dict(element.items())
                assert "style" not in attributes, asked
                assert not [name for name in attributes if name.startswith("on")], asked
                source = attributes.get("src") or ""
                assert not source.startswith(("http:", "https:", "//")), asked
            assert not [link for link in page.links() if link.startswith(("http", "//"))], asked
            assert page.response["Content-Security-Policy"]


def test_labels_and_names_are_on_every_control(scene: Scene, reader: Client) -> None:
    for address in every_page(scene):
        page = Page(reader, address)
        labelled = {e.get("for") for e in page.all("label")}
        wrapped = {id(field) for label in page.all("label") for field in label.iter("input")}
        for tag in ("input", "select", "textarea"):
            for field in page.all(tag):
                if field.get("type") == "hidden" or id(field) in wrapped:
                    continue
                assert field.get("id") in labelled, (address, field.attrib)
        for tag in ("a", "button"):
            for element in page.all(tag):
                assert "".join(element.itertext()).strip() or element.get("aria-label"), address


def test_shown_and_filtered_add_up_on_every_page_under_every_lens(
    scene: Scene, reader: Client
) -> None:
    for address in lists(scene):
        clean = Page(reader, address).counts()
        assert clean.shown + clean.filtered == clean.total, address
        assert sum(clean.by_reason.values()) == clean.filtered, address
        for value in ("1", "only"):
            assert Page(reader, with_lens(address, value)).counts() == clean, address


def test_counts_are_those_of_the_database(scene: Scene, reader: Client) -> None:
    del scene
    for address, model in ROWS_OF_LIST.items():
        counts = Page(reader, address).counts()
        rows = model._default_manager.all()
        assert counts.shown == rows.filter(filter_code__isnull=True).count()
        assert counts.filtered == rows.filter(filter_code__isnull=False).count()
        codes = Counter(
            rows.filter(filter_code__isnull=False).values_list("filter_code", flat=True)
        )
        assert counts.by_reason == dict(codes)


def test_the_switch_lists_just_what_it_counts(scene: Scene, reader: Client) -> None:
    for address in lists(scene):
        if "tab=graph" in address or address == "/filtered/":
            continue  # a picture has no rows; the explorer lists the other half by itself
        counts = Page(reader, address).counts()
        clean, both = Page(reader, address), Page(reader, with_lens(address, "1"))
        only = Page(reader, with_lens(address, "only"))
        assert (len(clean.rows()), len(clean.filtered_rows())) == (counts.shown, 0), address
        assert len(both.rows()) == counts.total, address
        assert len(both.filtered_rows()) == counts.filtered, address
        assert len(only.rows()) == len(only.filtered_rows()) == counts.filtered, address


def test_every_reason_leads_to_the_rows_that_have_it(scene: Scene, reader: Client) -> None:
    address = f"/runs/{scene.healed}/?tab=events"
    page = Page(reader, address)
    counts = page.counts()
    assert len(counts.by_reason) == 2
    for code, number in counts.by_reason.items():
        told = Page(reader, f"/runs/{scene.healed}/?tab=events&why={code}")
        assert len(told.filtered_rows()) == len(told.rows()) == number


def test_a_filtered_row_says_why_in_a_sentence_and_leads_to_what_replaced_it(
    scene: Scene, reader: Client
) -> None:
    page = Page(reader, f"/task-instances/{scene.retried}/?filtered=only")
    (row,) = page.filtered_rows()
    text = " ".join(" ".join(row.itertext()).split())
    assert "SUPERSEDED" in text
    assert "Try 1 ended as failed; try 2 replaced it" in text
    (replacement,) = [a for a in row.iter("a") if "replaced by" in "".join(a.itertext())]
    followed = Page(reader, str(replacement.get("href")))
    assert followed.response.status_code == 200
    assert "2.0.1" in followed.text


def test_a_ghost_is_on_the_pages_although_it_has_no_parents(scene: Scene, reader: Client) -> None:
    listed = Page(reader, "/attempts/?filtered=only&why=ghost_no_record")
    assert str(scene.ghost) in listed.text
    detail = Page(reader, f"/attempts/{scene.ghost}/")
    assert detail.response.status_code == 200
    assert f"No attempt with id {scene.ghost} was issued." in detail.text


def test_every_link_carries_the_lens_on_while_it_is_on(scene: Scene, reader: Client) -> None:
    leaving = re.compile(r"filtered=|why=|^#|/admin/|/log/$|/evidence/$")  # has both halves
    for address in (*lists(scene), "/", f"/runs/{scene.failed}/"):
        page = Page(reader, with_lens(address, "1"))
        turned_off = [
            e
            for e in page.all("a")
            if e.get("data-lens-toggle") is not None or "turn off" in "".join(e.itertext())
        ]
        off = {e.get("href") for e in turned_off}
        forgotten = [a for a in page.links() if not leaving.search(a) and a not in off]
        assert forgotten == [], address


def test_a_clean_page_leads_nowhere_filtered_but_where_it_says_so(
    scene: Scene, reader: Client
) -> None:
    page = Page(reader, f"/runs/{scene.failed}/")
    assert not [
        e
        for e in page.all("a")
        if "filtered=" in str(e.get("href")) and "filtered" not in "".join(e.itertext())
    ]


def test_pages_read_little(scene: Scene, reader: Client) -> None:
    for address in every_page(scene):
        reader.get(address)  # fills the caches of the process
        with CaptureQueriesContext(connection) as queries:
            reader.get(address)
        assert len(queries) <= QUERIES_MAX, address


def test_a_run_of_two_pages_has_a_second_page_that_goes_on(scene: Scene, reader: Client) -> None:
    first = Page(reader, f"/runs/{scene.healed}/?tab=attempts&limit=4&filtered=1")
    assert len(first.rows()) == 4
    (following,) = [e for e in first.all("a") if e.get("rel") == "next"]
    second = Page(reader, f"/runs/{scene.healed}/{following.get('href')}")
    ids = [row.get("id") for row in (*first.rows(), *second.rows())]
    assert len(ids) == len(set(ids)) == first.counts().total == second.counts().total


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("/runs/?flow_id=nobody", "No runs match these filters."),
        ("/runs/?filtered=only", "No filtered runs."),
        ("/flows/hourly_sync/", "No runs yet."),
    ],
)
def test_an_empty_list_says_whether_none_exist_or_none_match(
    scene: Scene, reader: Client, address: str, sentence: str
) -> None:
    del scene
    assert sentence in Page(reader, address).text


def test_every_list_of_the_api_can_be_had_as_csv_under_the_same_filters(
    scene: Scene, reader: Client
) -> None:
    page = Page(reader, f"/runs/{scene.healed}/?tab=attempts&state=ended&filtered=1&limit=2")
    (export,) = [link for link in page.links() if "/export/" in link]
    place = urlsplit(export)
    assert resolve(place.path).url_name == "api-attempts-export"
    assert parse_qs(place.query) == {
        "filtered": ["1"],
        "state": ["ended"],
        "kind": ["task"],
        "run": [str(scene.healed)],
        "format": ["csv"],
    }
    for address in lists(scene):
        for link in Page(reader, address).links():
            if "/export/" in link:
                assert str(resolve(urlsplit(link).path).url_name).endswith("-export"), link


def test_an_empty_installation_has_every_list(reader: Client) -> None:
    for address in ("/", "/flows/", *ROWS_OF_LIST, "/leases/", "/jobs/", "/pools/", "/limits/"):
        assert Page(reader, address).response.status_code == 200, address


def test_the_home_page_names_what_broke_and_gives_the_denominator(
    scene: Scene, reader: Client
) -> None:
    page = Page(reader, "/")
    text = " ".join("".join(page.root.itertext()).split())
    assert "load_warehouse" in text
    assert "OSError: disk quota exceeded on /srv/warehouse" in text
    assert f"/runs/{scene.failed}/" in page.links()
    assert re.search(r"executor events 3 9 ", text), text


def test_the_run_page_shows_its_first_failure_above_everything(
    scene: Scene, reader: Client
) -> None:
    page = Page(reader, f"/runs/{scene.failed}/")
    assert page.text.index("First failure:") < page.text.index('class="tabs"')
    assert "1 could not start because of it" in page.text


def test_the_tab_of_filtered_records_counts_all_kinds(scene: Scene, reader: Client) -> None:
    page = Page(reader, f"/runs/{scene.healed}/?tab=filtered")
    text = " ".join("".join(page.root.itertext()).split())
    rows = len(page.filtered_rows())
    assert rows == 3
    assert f"{rows} of the 22 records of this run are filtered" in text


def test_a_run_is_found_by_its_text_id(scene: Scene, reader: Client) -> None:
    response = reader.get("/flows/nightly_sales/runs/manual__healed/?tab=graph&filtered=1")
    assert response.headers["Location"] == f"/runs/{scene.healed}/?tab=graph&filtered=1"


def test_the_graph_marks_the_task_whose_attempts_were_set_aside(
    scene: Scene, reader: Client
) -> None:
    page = Page(reader, f"/runs/{scene.healed}/?tab=graph")
    titles = ["".join(e.itertext()) for e in page.all("title")]
    assert "extract, success, has filtered records" in titles
    assert "clean, success" in titles


def test_the_task_page_says_why_and_agrees_with_its_facts(scene: Scene, reader: Client) -> None:
    for ti in TaskInstance.objects.filter(run_id__in=(scene.healed, scene.failed, scene.running)):
        page = Page(reader, f"/task-instances/{ti.pk}/")
        (line,) = [e for e in page.all("p") if e.get("id") == "why"]
        text = " ".join("".join(line.itertext()).split())
        told = why_of(EVERYTHING, ti.pk)
        assert text == f"{told.sentence} Rule: {told.rule}"
        one = Attempt.objects.filter(pk=ti.attempt_id).first() if ti.attempt_id else None
        if one is not None and one.hostname:
            assert f"{one.hostname}:{one.pid}" in text
