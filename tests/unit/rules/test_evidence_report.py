"""The report of evidence and its picture: they stand by themselves, and nothing in them is markup of others."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

import html5lib
import pytest

from scheduler_app.rules import evidence_report
from scheduler_app.rules.evidence_report import picture, report

EVIL = '<script>alert("x")</script>&'
OLD, NEW = "01a22832-83ed-728a-be99-43049e895bf7", "01a22832-83ed-728a-be99-43049e895bf8"
SVG = "{http://www.w3.org/2000/svg}"


def moment(no: int, at: str, what: str, file: str = "attempts", **more: Any) -> dict[str, Any]:
    return {"no": no, "at": f"2026-11-30T{at}Z", "what": what, "file": file, **more}


def rows() -> dict[str, list[dict[str, object]]]:
    return {
        "attempts": [
            {
                "id": OLD,
                "task_id": "load",
                "try_number": 1,
                "outcome": "failed",
                "filter_code": "superseded_by_retry",
                "filter_reason": "Replaced.",
            },
            {"id": NEW, "task_id": "load", "try_number": 2, "outcome": None, "filter_code": None},
        ],
        "timeline": [
            moment(1, "02:00:00", "attempt claimed: task", attempt_id=OLD, who="w-1:7"),
            moment(2, "02:00:10", "attempt ended: failed", attempt_id=OLD, words=EVIL),
            moment(3, "09:00:00", "attempt claimed: task", attempt_id=NEW),
            moment(4, "09:00:01", "executor event", "executor_events", verdict="ignored"),
            moment(5, "09:00:02", "lease event: acquired", "lease_events", token=7),
        ],
    }


def page() -> bytes:
    return report(
        subject=f"run {EVIL}", facts=[("Snapshot", "1:2:")], rows=rows(), omitted=["Logs are out."]
    )


def test_the_page_tells_counts_reasons_and_moments() -> None:
    told = page().decode()
    html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(told)
    text = "".join(html5lib.parse(told, namespaceHTMLElements=False).itertext())
    assert "attempts112" in text, "one shown, one filtered, two in all"
    assert "superseded_by_retryReplaced." in text
    assert "Set aside: 1" in text
    assert "What happened: 5 moments" in text
    assert "Logs are out." in text
    assert text.index("attempt ended: failed") < text.index("lease event: acquired")


def test_nothing_of_others_is_markup_and_nothing_is_fetched() -> None:
    for told in (page().decode(), picture(rows()).decode()):
        assert "<script" not in told
        assert "alert" in told
        for fetching in ("src=", "href=", "url(", "@import"):
            assert fetching not in told


def test_the_picture_has_a_lane_for_each_attempt_and_hollow_marks_for_what_is_set_aside() -> None:
    root = ET.fromstring(picture(rows()).decode())
    names = [text.text or "" for text in root.iter(f"{SVG}text")]
    assert [name.partition(" …")[0] for name in names[2:]] == [
        "leader",
        "load #1",
        "load #2",
        "executor events",
    ]
    marks = list(root.iter(f"{SVG}circle"))
    assert [mark.get("fill") == "#fff" for mark in marks] == [True, True, False, True, False]
    places = [float(str(mark.get("cx"))) for mark in marks]
    assert places == sorted(places)
    # Seven idle hours are drawn as one minute: ten seconds before it are a seventh of the width.
    assert places[1] - places[0] > 100
    # One bar of what has ended, one of what still runs.
    assert len(list(root.iter(f"{SVG}rect"))) == 2


def test_without_moments_there_is_a_page_and_a_picture_all_the_same() -> None:
    assert b"Nothing." in report(subject="x", facts=(), rows={"timeline": []}, omitted=())
    ET.fromstring(picture({}).decode())


def test_of_very_many_moments_the_page_has_the_first_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evidence_report, "MOMENTS_MAX", 2)
    told = page().decode()
    assert "The first 2 are here" in told
    assert "lease event: acquired" not in told
