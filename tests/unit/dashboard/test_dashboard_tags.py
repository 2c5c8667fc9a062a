"""How states, times, durations and links are written."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from uuid import UUID

import pytest
from django.template import Context
from django.test import RequestFactory
from django.urls import reverse

from dashboard.addresses import address, carried, changed, is_lens_on
from dashboard.templatetags import dashboard as tags
from scheduler_app.queries import shown
from scheduler_app.rules import states

NOW = datetime(2026, 11, 29, 2, 11, 5, tzinfo=UTC)
STATIC = Path(__file__).parents[3] / "static"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0312, "31 ms"),
        (4.25, "4.2 s"),
        (59.9, "59 s"),
        (252, "4 m 12 s"),
        (3600 * 2 + 240, "2 h 4 m"),
        (86400 * 3 + 7200, "3 d 2 h"),
        (-3, "0 ms"),
        (None, ""),
    ],
)
def test_durations_are_in_words(seconds: float | None, text: str) -> None:
    assert tags.in_words(seconds) == text


def test_a_time_is_written_in_utc_whatever_its_offset() -> None:
    at = datetime(2026, 11, 29, 3, 11, 5, 214000, tzinfo=timezone(timedelta(hours=1)))
    html = tags.moment(Context({"now": NOW}), at)
    assert 'datetime="2026-11-29T02:11:05.214Z"' in html
    assert ">29 Nov 02:11:05</time>" in html


def test_a_time_of_another_year_names_the_year() -> None:
    html = tags.moment(Context({"now": NOW}), datetime(2025, 3, 1, tzinfo=UTC))
    assert ">01 Mar 2025 00:00:00</time>" in html


def test_a_missing_time_is_the_given_word() -> None:
    assert tags.moment(Context({"now": NOW}), None, "not yet") == "not yet"


def test_a_running_duration_carries_its_start_so_that_it_can_tick() -> None:
    html = tags.duration(Context({"now": NOW}), NOW - timedelta(seconds=75))
    assert html == '<span data-since="2026-11-29T02:09:50+00:00">1 m 15 s</span>'


def test_every_state_has_a_mark_of_its_own_and_a_word() -> None:
    symbols = set(re.findall(r'<symbol id="(\w+)"', (STATIC / "img/marks.svg").read_text("utf-8")))
    every = {
        *shown.RUN_STATES,
        *shown.TASK_STATES,
        *shown.ATTEMPT_STATES,
        *shown.OUTCOMES,
        *shown.FLOW_STATES,
        *shown.LEASE_STATES,
        *shown.VERDICTS,
    }
    for state in sorted(every):
        html = tags.state_mark(state)
        (symbol,) = re.findall(r"marks\.svg#(\w+)", html)
        assert symbol in symbols - {"other"}, state
        assert tags.word(state) in html


def test_an_unknown_state_shows_its_raw_name_beside_the_question_mark() -> None:
    html = tags.state_mark("on_holiday")
    assert "#other" in html
    assert "on holiday" in html


def test_a_tally_begins_with_the_trouble() -> None:
    tally = {"success": 4, "failed": 1, "on_holiday": 1, "running": 2}
    assert [state for state, _ in tags.worst_first(tally)] == [
        "on_holiday",
        "failed",
        "running",
        "success",
    ]
    assert tags.worst_first(None) == []


def test_text_from_outside_is_escaped() -> None:
    assert "<script>" not in tags.state_mark("<script>")


def test_every_icon_of_the_templates_is_in_the_sprite() -> None:
    sprite = (STATIC / "vendor/tabler-icons-3.52.0/icons.svg").read_text("utf-8")
    symbols = set(re.findall(r'<symbol id="([\w-]+)"', sprite))
    used: set[str] = set()
    for path in (STATIC.parent / "templates").rglob("*.html"):
        text = path.read_text("utf-8")
        used |= set(re.findall(r"{% icon '([\w-]+)' %}", text))
        used |= set(re.findall(r"{% place '\w+' '[^']+' '([\w-]+)'", text))
    assert used
    assert used <= symbols


def test_terminal_states_of_the_product_are_known_to_the_marks() -> None:
    assert {state.value for state in states.TaskState} <= set(shown.TASK_STATES)


def test_addresses_are_those_of_the_urls() -> None:
    number, attempt = 4711, UUID("018f2a3c-0000-7000-8000-00000000abcd")
    for name, args in (
        ("run_detail", (number,)),
        ("attempt_detail", (attempt,)),
        ("flow_detail", ("a_flow",)),
        ("mapped_task", (number, "load.rows")),
        ("home", ()),
    ):
        assert address(f"dashboard:{name}", *args) == reverse(f"dashboard:{name}", args=args)
    clean, seeking = RequestFactory().get("/runs/"), RequestFactory().get("/runs/?filtered=only")
    for noun, record_id in (("run", "17"), ("attempt", str(attempt)), ("flow", "a_flow")):
        page = reverse(f"dashboard:{tags.PAGE_OF[noun]}", args=[record_id])
        assert tags.record_link(Context({"request": clean}), noun, record_id) == page
        there = tags.record_link(Context({"request": seeking}), noun, record_id)
        assert there == f"{page}?filtered=1"


def test_a_link_carries_what_it_is_given_and_the_lens() -> None:
    seeking = RequestFactory().get("/runs/?filtered=1")
    assert carried(seeking, {}) == "?filtered=1"
    assert carried(seeking, {"tab": "a b&c", "why": None, "q": ""}) == "?tab=a%20b%26c&filtered=1"
    assert carried(seeking, {"filtered": "only"}) == "?filtered=only"
    assert carried(RequestFactory().get("/runs/"), {}) == ""


def test_changed_keeps_the_rest_and_drops_the_place_in_the_list() -> None:
    request = RequestFactory().get("/runs/?state=failed&state=running&cursor=abc&tab=")
    assert changed(request, {"order": "-id"}) == "?state=failed&state=running&order=-id"
    assert changed(request, {"state": None}) == "?"
    assert changed(request, {"cursor": "next"}) == "?state=failed&state=running&cursor=next"


@pytest.mark.parametrize(
    ("query", "is_on"),
    [
        ("", False),
        ("filtered=1", True),
        ("filtered=only", True),
        ("why=lost_worker", True),
        ("filtered=0&why=lost_worker", False),
        ("filtered=", False),
    ],
)
def test_the_lens_is_on_while_the_address_says_so(query: str, is_on: bool) -> None:
    request = RequestFactory().get(f"/runs/?{query}")
    assert is_lens_on(request) is is_on
    assert carried(request, {"tab": "log"}) == ("?tab=log&filtered=1" if is_on else "?tab=log")
