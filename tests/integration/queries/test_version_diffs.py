"""Two versions of a flow compared: command line, API, page, and the Airflow-compatible API."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.test import Client

from scheduler_app.models import Bundle, Flow
from scheduler_app.processes import bundles
from scheduler_app.queries import version_diffs
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.rules import definition, schedule
from scheduler_app.rules.definition import TaskDefinition
from scheduler_app.rules.errors import InvalidInput, NotFound
from scheduler_app.rules.schedule import Schedule
from tests.factories import at, make_flow, make_run, make_version
from tests.integration.dashboard.pages import Page

if TYPE_CHECKING:
    from scheduler_app.models import FlowVersion, Run

pytestmark = pytest.mark.django_db

FLOW = "nightly"
SOURCES = ({"flow.py": b"one\n"}, {"flow.py": b"one\n"}, {"flow.py": b"two\n", "more.py": b"m\n"})
DIGESTS = ("aaaaaa" + "1" * 58, "aaaaaa" + "2" * 58, "bbbbbb" + "3" * 58)


@pytest.fixture
def bound() -> Run:
    """A run of the first of three versions, the newest of which has other code."""
    flow = make_flow(flow_id=FLOW)
    flow.versions.update(number=0)
    flow.current_version = None
    flow.save()
    flow.versions.all().delete()
    run = None
    for number, sources in enumerate(SOURCES, 1):
        _store(flow, number, sources)
        run = run or make_run(flow=flow, run_key="by_hand")
    assert run is not None
    return run


def _store(flow: Flow, number: int, sources: dict[str, bytes]) -> FlowVersion:
    digest, archive = bundles.pack_sources("flow.py", sources)
    bundle, _ = Bundle.objects.get_or_create(
        digest=digest, defaults={"main_path": "flow.py", "archive": archive, "created_at": at(0)}
    )
    tasks = [TaskDefinition(task_id="extract", retries=number)]
    tasks += [TaskDefinition(task_id="load", upstream=("extract",))] if number > 1 else []
    said = definition.FlowDefinition(flow_id=FLOW, tasks=tuple(tasks), schedule="0 2 * * *")
    return make_version(
        flow,
        number=number,
        digest=DIGESTS[number - 1],
        bundle=bundle,
        definition=definition.to_dict(said),
        created_at=at(number),
    )


@pytest.fixture
def ana() -> Client:
    client = Client()
    client.force_login(get_user_model().objects.create_user("ana"))
    return client


def _numbers(**named: str) -> tuple[int, int]:
    found = version_diffs.of_flow(EVERYTHING, FLOW, **named)
    return found.old.number, found.new.number


def test_the_newest_is_compared_with_the_one_before_unless_others_are_named(bound: Run) -> None:
    assert _numbers() == (2, 3)
    assert _numbers(new="2") == (1, 2)
    assert _numbers(old="1") == (1, 3)
    assert _numbers(old="3", new="1") == (3, 1)
    assert _numbers(run_id=bound.run_key) == (1, 3)
    assert _numbers(old=DIGESTS[0][:8], new=DIGESTS[2].upper()) == (1, 3)


@pytest.mark.parametrize(
    ("named", "error", "said"),
    [
        ({"old": "9"}, NotFound, "no version 9 of flow nightly"),
        ({"old": "cccccc"}, NotFound, "no version whose digest begins with cccccc"),
        ({"old": "aaaaaa"}, InvalidInput, "beginning of several digests, as of versions 1 and 2"),
        (
            {"old": "aaaaa"},
            InvalidInput,
            "'aaaaa' names no version. Give its number, or at least 6",
        ),
        ({"old": "yesterday"}, InvalidInput, "'yesterday' names no version"),
        ({"new": "1"}, NotFound, "Version 1 is the first of flow nightly"),
        ({"run_id": "none"}, NotFound, "no run none of flow nightly"),
        ({"run_id": "by_hand", "old": "1"}, InvalidInput, "not both"),
    ],
)
def test_what_names_no_version_is_refused(
    bound: Run, named: dict[str, str], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        version_diffs.of_flow(EVERYTHING, FLOW, **named)


def test_code_that_cannot_be_read_is_said(bound: Run) -> None:
    Bundle.objects.filter(flowversion__number=3).update(archive=b"no zip")
    found = version_diffs.of_flow(EVERYTHING, FLOW)
    assert found.is_source_damaged
    assert found.differ
    assert not found.diff.files


def _command(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = 0
    try:
        call_command("flows", *words)
    except SystemExit as end:
        code = int(end.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


def test_the_command_tells_what_differs(bound: Run, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _command(capsys, "diff", FLOW, "1", "3")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == (
        "Flow nightly, from version 1 (aaaaaa111111, 2026-01-01 00:00:01Z)"
        " to version 3 (bbbbbb333333, 2026-01-01 00:00:03Z)"
    )
    assert lines[1] == "1 task added, 1 task changed, 1 edge added, 2 files changed."
    assert lines[3:] == [
        "Tasks",
        "+ load",
        "~ extract: retries: 1 → 3",
        "",
        "Edges",
        "+ extract -> load",
        "",
        "--- flow.py (version 1)",
        "+++ flow.py (version 3)",
        "@@ -1 +1 @@",
        "-one",
        "+two",
        "",
        "--- /dev/null",
        "+++ more.py (version 3)",
        "@@ -0,0 +1 @@",
        "+m",
    ]
    _, bare, _ = _command(capsys, "diff", FLOW, "1", "3", "--no-code")
    assert "flow.py" not in bare
    _, coloured, _ = _command(capsys, "diff", FLOW, "1", "3", "--color", "always")
    assert "\x1b[32m+two\x1b[0m" in coloured


def test_the_command_of_a_run_and_its_exit_codes(
    bound: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = _command(capsys, "diff", FLOW, "--run", "by_hand", "--exit-code")
    assert code == 3
    assert "Run by_hand is bound to version 1." in out
    _, out, _ = _command(capsys, "diff", FLOW, "2", "--run", "by_hand")
    assert "from version 1 (" in out
    assert "to version 2 (" in out
    code, out, _ = _command(capsys, "diff", FLOW, "2", "2", "--exit-code")
    assert (code, out.splitlines()[1]) == (0, "Nothing differs.")
    code, out, err = _command(capsys, "diff", FLOW, "7")
    assert (code, out) == (1, "")
    assert "version 7 of flow nightly" in err
    value = json.loads(_command(capsys, "diff", FLOW, "1", "2", "--json")[1])
    assert (value["old"]["number"], value["new"]["number"], value["differ"]) == (1, 2, True)
    assert value["tasks"]["added"] == ["load"]


def test_the_command_lists_versions(bound: Run, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _command(capsys, "versions", FLOW)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:4]] == ["3", "2", "1"]
    assert out.splitlines()[1].endswith("current")
    assert "3 versions, none filtered" in out
    rows = json.loads(_command(capsys, "versions", FLOW, "--json", "--limit", "1")[1])["results"]
    assert [row["number"] for row in rows] == [3]


def test_the_api_compares_and_has_the_source(bound: Run, ana: Client) -> None:
    address = f"/api/v1/flows/{FLOW}/versions"
    body = ana.get(f"{address}/diff/", {"run_id": "by_hand"}).json()
    assert (body["old"]["number"], body["new"]["number"]) == (1, 3)
    assert body["edges_added"] == [["extract", "load"]]
    assert body["tasks"]["changed"] == [
        {"name": "extract", "changes": [{"name": "retries", "old": 1, "new": 3}]}
    ]
    assert [(file["path"], file["state"]) for file in body["files"]] == [
        ("flow.py", "changed"),
        ("more.py", "added"),
    ]
    assert ana.get(f"{address}/diff/", {"old": "7"}).status_code == 404
    assert ana.get(f"{address}/diff/", {"old": "x"}).status_code == 400
    assert ana.get(f"{address}/diff/", {"from": "1"}).status_code == 400
    source = ana.get(f"{address}/3/source/").json()
    assert source["main_path"] == "flow.py"
    assert source["files"] == [
        {"path": "flow.py", "size": 4, "text": "two\n"},
        {"path": "more.py", "size": 2, "text": "m\n"},
    ]
    assert ana.get(f"{address}/9/source/").status_code == 404


def test_the_compatible_api_has_the_source(bound: Run, ana: Client) -> None:
    address = f"/api/v2/dagSources/{FLOW}"
    assert ana.get(address).json() == {
        "content": "two\n",
        "dag_id": FLOW,
        "version_number": 3,
        "dag_display_name": FLOW,
    }
    assert ana.get(address, {"version_number": "1"}).json()["content"] == "one\n"
    bare = ana.get(address, headers={"accept": "text/plain"})
    assert (bare.content, bare["Content-Type"]) == (b"two\n", "text/plain; charset=utf-8")
    assert ana.get(address, headers={"accept": "image/png"}).status_code == 406
    assert ana.get(address, {"version_number": "x"}).status_code == 422
    assert ana.get(address, {"version_number": "9"}).status_code == 404
    assert ana.get("/api/v2/dagSources/none").status_code == 404


def _text(page: Page) -> str:
    return " ".join("".join(page.root.itertext()).split())


def test_the_page_lists_versions_and_compares_two(bound: Run, ana: Client) -> None:
    page = Page(ana, f"/flows/{FLOW}/?tab=versions")
    assert page.faults == []
    assert page.counts().shown == 3
    assert "1 task changed, code" in _text(page)
    named = next(link for link in page.links() if "old=1" in link and "new=2" in link)
    compared = Page(ana, f"/flows/{FLOW}/{named}")
    assert compared.faults == []
    assert "Version 1 → 2" in _text(compared)
    assert "~ extract retries: 1 → 2" in _text(compared)
    whole = Page(ana, f"/flows/{FLOW}/?tab=versions&old=1&new={DIGESTS[2]}")
    assert "+two" in whole.text
    assert {
        element.get("value") for element in whole.all("input") if element.get("checked") is not None
    } >= {"1", "3"}


def test_a_long_schedule_is_told_in_words_by_command_and_page(
    bound: Run, ana: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    version = bound.flow.versions.get(number=3)
    long = Schedule(crons=("0 2 * * *", "30 14 * * 1-5"), exclude=("2026-12-25",))
    version.definition |= {"schedule": long.text, "timetable": schedule.to_dict(long)}
    version.save()
    lines = (
        "~ schedule: every day at 02:00 UTC → every day at 02:00, and every Monday to Friday at 14:30"
        " UTC",
        "+ except 25 December 2026",
    )
    _, out, _ = _command(capsys, "diff", FLOW, "2", "3")
    assert "\n".join(["Schedule", *lines]) in out
    page = Page(ana, f"/flows/{FLOW}/?tab=versions&old=2&new=3")
    assert page.faults == []
    assert " ".join(["Schedule", *lines]) in _text(page)
    # For scripts, the values as they are stored.
    told = json.loads(_command(capsys, "diff", FLOW, "2", "3", "--json")[1])["schedule"]
    assert told[1]["new"]["exclude"] == ["2026-12-25"]


def test_the_page_says_what_is_wrong_with_the_two_and_keeps_the_list(
    bound: Run, ana: Client
) -> None:
    page = Page(ana, f"/flows/{FLOW}/?tab=versions&old=8&new=1")
    assert page.response.status_code == 200
    assert "version 8 of flow nightly" in _text(page)
    assert page.counts().shown == 3


def test_a_filter_of_versions_narrows_the_list(bound: Run, ana: Client) -> None:
    page = Page(ana, f"/flows/{FLOW}/?tab=versions&number=2")
    assert page.counts().shown == 1
    values: Any = ana.get(
        f"/api/v1/flows/{FLOW}/versions/", {"created_at_gte": at(2).isoformat()}
    ).json()
    assert [row["number"] for row in values["results"]] == [3, 2]
