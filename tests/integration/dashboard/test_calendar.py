"""The calendar of a flow: days by outcome, what is planned, and the list behind each day."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from scheduler_app.models import Flow
from scheduler_app.queries import run_calendar
from scheduler_app.rules import definition
from scheduler_app.rules.definition import TaskDefinition
from scheduler_app.rules.states import RunState, RunType
from tests.factories import make_flow, make_run, make_version
from tests.integration.dashboard.pages import Page

if TYPE_CHECKING:
    from django.test import Client

pytestmark = pytest.mark.django_db

MONTH = "/flows/nightly/?tab=calendar&month=2026-04"


def _flow(**more: Any) -> Flow:
    flow = make_flow(flow_id="nightly", created_at=datetime(2026, 3, 24, tzinfo=UTC), **more)
    said = definition.FlowDefinition(
        flow_id="nightly",
        tasks=(TaskDefinition(task_id="t"),),
        schedule="0 2 * * *",
        timezone="Europe/Berlin",
    )
    make_version(flow, definition=definition.to_dict(said))
    return flow


def _run(flow: Flow, day: datetime, state: str = RunState.SUCCESS, **more: Any) -> None:
    make_run(
        flow=flow, logical_date=day, state=state, run_key=f"r{day:%d%H%M}{state}{len(more)}", **more
    )


def _cells(page: Page) -> dict[str, Any]:
    """The links of days, by what they say of their day."""
    return {
        str(link.get("title")).split(":")[0]: link
        for link in page.all("a")
        if "day" in str(link.get("class")).split()
    }


def _marks(link: Any) -> str:
    return " ".join(str(e.get("class")) for e in link.iter() if "sign" in str(e.get("class")))


def test_each_day_has_its_worst_outcome_and_leads_to_its_runs(reader: Client) -> None:
    flow = _flow(
        next_interval_start=datetime(2026, 4, 2, tzinfo=UTC),
        next_interval_end=datetime(2026, 4, 3, tzinfo=UTC),
    )
    midnight = datetime(2026, 3, 28, 23, tzinfo=UTC)  # 29 March, 00:00 in Berlin
    _run(flow, midnight)
    _run(flow, midnight + timedelta(hours=22, minutes=59), RunState.FAILED)  # the day has 23 hours
    _run(flow, midnight + timedelta(hours=23))  # 30 March
    _run(flow, midnight + timedelta(hours=24), filter_code="duplicate_logical_date")
    page = Page(reader, MONTH)
    assert page.faults == []
    cells = _cells(page)
    spring = cells["Sun 29 Mar"]
    assert (
        spring.get("title")
        == "Sun 29 Mar: 1 failed, 1 success · 0 filtered; the clock goes forward by 60 min"
    )
    assert "sign-failed" in _marks(spring)
    day = cells["Mon 30 Mar"]
    assert str(day.get("title")).endswith("1 success · 1 filtered")
    assert "has-filtered" in str(day.get("class"))
    for link, shown in ((spring, 2), (day, 1)):
        listed = Page(reader, str(link.get("href")))
        assert listed.counts().shown == shown
    query = parse_qs(urlsplit(str(spring.get("href"))).query)
    assert query["logical_date_gte"] == ["2026-03-28T23:00:00Z"]
    assert query["logical_date_lte"] == ["2026-03-29T21:59:59.999999Z"]


def test_days_to_come_are_planned_and_days_passed_over_are_marked(reader: Client) -> None:
    flow = _flow(
        next_interval_start=datetime(2026, 4, 2, tzinfo=UTC),
        next_interval_end=datetime(2026, 4, 3, tzinfo=UTC),
    )
    _run(flow, datetime(2026, 4, 1, tzinfo=UTC), run_type=RunType.SCHEDULED)
    cells = _cells(Page(reader, MONTH))
    assert cells["Thu 2 Apr"].get("title") == "Thu 2 Apr: planned: due 3 Apr 02:00"
    assert "day-planned" in str(cells["Thu 30 Apr"].get("class"))
    assert "day-left_out" in str(cells["Tue 31 Mar"].get("class"))
    assert cells["Mon 23 Mar"].get("title") == "Mon 23 Mar: no runs"  # before the flow was there
    Flow.objects.update(is_paused=True)
    page = Page(reader, MONTH)
    assert "day-planned" not in page.text
    assert "its schedule is paused" in page.text


def test_the_lens_shows_days_of_filtered_runs_alone(reader: Client) -> None:
    flow = _flow()
    _run(flow, datetime(2026, 4, 1, tzinfo=UTC), filter_code="duplicate_logical_date")
    clean, full = Page(reader, MONTH), Page(reader, f"{MONTH}&filtered=1")
    assert "day-filtered" not in str(_cells(clean)["Wed 1 Apr"].get("class"))
    assert "day-filtered" in str(_cells(full)["Wed 1 Apr"].get("class"))
    listed = Page(reader, str(_cells(full)["Wed 1 Apr"].get("href")))
    assert len(listed.filtered_rows()) == 1


def test_the_clock_can_be_utc_and_the_months_go_on(reader: Client) -> None:
    flow = _flow()
    _run(flow, datetime(2026, 3, 28, 23, tzinfo=UTC))
    page = Page(reader, f"{MONTH}&zone=utc")
    assert str(_cells(page)["Sat 28 Mar"].get("title")).startswith("Sat 28 Mar: 1 success")
    assert "clock goes" not in page.text
    captions = ["".join(e.itertext()) for e in page.all("caption")]
    assert captions[0] == "November 2025"
    assert captions[5] == "April 2026"
    assert any("month=2025-10" in link for link in page.links())
    assert any("month=2026-10" in link for link in page.links())
    for bad in ("2026-13", "x", "9999-12"):
        assert reader.get(f"/flows/nightly/?tab=calendar&month={bad}").status_code == 200


def test_a_flow_without_a_schedule_or_version_has_a_calendar_too(reader: Client) -> None:
    make_flow(flow_id="nightly").versions.all()
    Flow.objects.update(current_version=None)
    page = Page(reader, MONTH)
    assert page.response.status_code == 200
    assert re.search(r"planned\s*: nothing in these months", page.text)


def test_of_too_many_runs_the_newest_are_counted(
    reader: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_calendar, "RUNS_MAX", 2)
    flow = _flow()
    for day in (1, 2, 3, 4):
        _run(flow, datetime(2026, 4, day, tzinfo=UTC))
    page = Page(reader, MONTH)
    told = [title for title, link in _cells(page).items() if "success" in str(link.get("title"))]
    assert told == ["Fri 3 Apr", "Sat 4 Apr"]
    assert "too many runs to count" in page.text
