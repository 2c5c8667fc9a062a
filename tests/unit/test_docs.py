"""What the documents say is what the code does."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from scheduler_app.authoring.registry import collecting
from scheduler_app.rules.definition import TriggerRule
from scheduler_app.rules.states import ATTEMPT_MOVES, RUN_MOVES, TASK_MOVES

CHECKOUT = Path(__file__).parents[2]
STATE_MACHINE = (CHECKOUT / "docs" / "state_machine.md").read_text(encoding="utf-8")
LINK = re.compile(r"\[[^\]]+\]\((?!https?://|#)([^)#\s]+)")


def _table(heading: str) -> dict[str, set[str]]:
    section = STATE_MACHINE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| ([a-z_]+) \|([a-z_, ]*)\|$", section, re.MULTILINE)
    return {
        source: {target.strip() for target in targets.split(",") if target.strip()}
        for source, targets in rows
        if source != "from"
    }


@pytest.mark.parametrize(
    ("heading", "moves"),
    [("Task instance", TASK_MOVES), ("Run", RUN_MOVES), ("Attempt", ATTEMPT_MOVES)],
)
def test_the_state_chart_is_the_table_of_moves(heading: str, moves: dict[str, set[str]]) -> None:
    assert _table(heading) == {str(s): {str(t) for t in targets} for s, targets in moves.items()}


def test_arrows_of_the_chart_are_allowed_moves() -> None:
    arrows = re.findall(r"^  (\w+) --> (\w+):", STATE_MACHINE, re.MULTILINE)
    assert arrows
    allowed = {(str(s), str(t)) for s, targets in TASK_MOVES.items() for t in targets}
    assert set(arrows) <= allowed


@pytest.mark.parametrize(
    "page",
    [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").rglob("*.md"))],
    ids=lambda p: p.name,
)
def test_links_between_documents_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_decision_says_context_choice_rejected_and_price() -> None:
    for page in sorted((CHECKOUT / "docs" / "decisions").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        for part in ("Date: ", "**Context.**", "**Choice.**", "**Rejected.**", "**Price.**"):
            assert part in text or page.name == "0005-dependencies.md", f"{page.name}: {part}"


def test_decisions_are_numbered_one_by_one() -> None:
    pages = sorted((CHECKOUT / "docs" / "decisions").glob("*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    for page in pages:
        assert page.read_text(encoding="utf-8").startswith(f"# {int(page.name[:4])}. "), page.name


def test_the_table_of_examples_names_every_flow_in_its_file() -> None:
    text = (CHECKOUT / "docs" / "writing_flows.md").read_text(encoding="utf-8")
    told = set(re.findall(r"^\| `(example_\w+)` \| `(\w+\.py)` \|", text, re.MULTILINE))
    flows = {
        (name, file.name)
        for file in (CHECKOUT / "scheduler_app" / "examples").glob("*.py")
        for name in re.findall(
            r"^def (example_\w+)\(", file.read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    assert told == flows


def test_the_examples_of_authoring_are_flows_without_a_fault() -> None:
    page = (CHECKOUT / "docs" / "authoring.md").read_text(encoding="utf-8")
    text = page.split("## Trigger rules\n", 1)[1]  # before it: tests/unit/test_tutorial.py
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert blocks
    names: dict[str, object] = {"__name__": "authoring"}
    with collecting() as registry:
        for block in blocks:
            exec(compile(block, "authoring.md", "exec"), names)
    assert [fault for one in registry.registrations for fault in one.faults] == []
    made = {one.flow.flow_id: one.flow.definition() for one in registry.registrations}
    assert set(made) == {
        "sources",
        "payment",
        "on_a_cluster",
        "branching",
        "customer",
        "daily",
    }
    assert made["sources"].task("load").upstream == (
        "sources.extract.check",
        "sources.extract.fetch",
        "sources.extract__1.check",
        "sources.extract__1.fetch",
    )
    assert made["payment"].task("undo").compensates == "pay"
    assert made["on_a_cluster"].task("drop_cluster").upstream == ("make_cluster", "more")
    second = datetime(2026, 1, 2, tzinfo=UTC)
    flows = [one.flow for one in registry.registrations]
    played = {one.flow_id: one.test(logical_date=second, flows=flows) for one in flows}
    assert {one.state for one in played.values()} == {"success"}
    assert played["branching"].states["reports.step"] == "skipped"
    assert played["branching"].states["join"] == "success"
    assert played["payment"].states["undo"] == "skipped"


def test_the_table_of_trigger_rules_has_each_of_them() -> None:
    text = (CHECKOUT / "docs" / "authoring.md").read_text(encoding="utf-8")
    told = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    assert told == {str(rule) for rule in TriggerRule} - {"all_done_setup_success"}
