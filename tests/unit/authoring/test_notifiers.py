from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from scheduler_app.authoring import (
    AppriseNotifier,
    EmailNotifier,
    Notifier,
    Secret,
    SlackNotifier,
    WebhookNotifier,
    notifiers,
)
from scheduler_app.authoring.letters import Letter, filled, letter_of

TEXT: Any = "https://hooks.example.com/services/T/B/x"  # in place of a secret
CONTEXT: dict[str, Any] = {
    "callback": "on_failure",
    "callback_key": "k",
    "url": "https://d.example/runs/1/",
    "run": SimpleNamespace(
        flow_id="f",
        run_id="r1",
        state="running",
        logical_date=datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
    ),
    "ti": SimpleNamespace(task_id="load", state="failed", map_index=-1, try_number=2),
    "exception": OSError("no\npage"),
    "reason": "OSError: no page",
    "conf": {"day": "monday", "_hidden": "x"},
}


def test_a_letter_says_what_happened_where_to_look_and_why() -> None:
    letter = letter_of(CONTEXT, subject=None, text=None)
    assert letter.subject == "f.load failed: r1"
    assert letter.text.splitlines() == [
        "f.load failed.",
        "Run r1, try 2",
        "OSError: no",
        "page",
        "https://d.example/runs/1/",
    ]
    assert letter.facts["exception"] == {"type": "OSError", "message": "no\npage"}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{run.flow_id} on {conf.day}", "f on monday"),
        ("{run.logical_date:%H:%M} {{x}}", "03:04 {x}"),
        ("{exception} {nothing} {ti.nothing}", "no\npage {nothing} -"),
        # Only names: nothing is called, indexed or reached that begins with an underscore.
        ("{run.__class__}", "{run.__class__}"),
        ("{conf._hidden}", "{conf._hidden}"),
        ("{run.flow_id!r} {run.flow_id:>99}", "f f"),
        ("{conf[day]}", "{conf[day]}"),
    ],
)
def test_templates_are_filled_with_names_alone(template: str, text: str) -> None:
    assert filled(template, CONTEXT) == text


def test_a_subject_has_one_line_whatever_an_exception_says() -> None:
    letter = letter_of(CONTEXT, subject="{exception}\r\nBcc: x@example.com", text="t")
    assert letter.subject == "no page Bcc: x@example.com"


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (lambda: WebhookNotifier("ftp://x"), "begins with https"),
        (lambda: WebhookNotifier("https://user:pw@x.example/"), "leave user and password out"),
        (lambda: WebhookNotifier("https://x.example", key=TEXT), "Secret"),
        (lambda: WebhookNotifier("https://x.example", headers={"Host": "y"}), "set by itself"),
        (lambda: WebhookNotifier("https://x.example", headers={"A": "b\r\nC: d"}), "printable"),
        (lambda: WebhookNotifier("https://x.example", subject="{"), "subject"),
        (lambda: SlackNotifier(TEXT), "stand in the flow file"),
        (lambda: AppriseNotifier(TEXT), "stand in the flow file"),
        (lambda: EmailNotifier([]), "1 to 50"),
        (lambda: EmailNotifier("a@b\nBcc: c@d"), "give an address"),
        (lambda: Secret("a value with blanks"), "not its value"),
        (lambda: notifiers.from_description({"kind": "pigeon"}), "one of webhook"),
        (lambda: notifiers.from_description({"kind": "email", "to": "a@b", "x": 1}), "email"),
    ],
)
def test_a_wrong_notifier_is_told_where_it_is_written(make: Any, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        make()


@pytest.mark.parametrize(
    "made",
    [
        WebhookNotifier(
            "https://x.example/in", key=Secret("k"), headers={"A": Secret("b"), "C": "d"}
        ),
        WebhookNotifier(Secret("u"), subject="{run.run_id}", text="{reason}"),
        EmailNotifier(["a@example.com", "b@example.com"]),
        SlackNotifier(Secret("u"), channel="#x"),
        AppriseNotifier(Secret("u")),
    ],
)
def test_a_description_makes_the_same_notifier_again(made: Notifier) -> None:
    again = notifiers.from_description(made.described())
    assert again.described() == made.described()
    assert notifiers.key_of(again.described()) == notifiers.key_of(made.described())


def test_without_a_courier_it_says_what_it_would_tell(capsys: pytest.CaptureFixture[str]) -> None:
    EmailNotifier("a@example.com")(CONTEXT)
    assert capsys.readouterr().out == "EmailNotifier would tell: f.load failed: r1\n"
    sent: list[Letter] = []
    with notifiers.sent_by(lambda told, letter: sent.append(letter)):
        EmailNotifier("a@example.com")(CONTEXT)
    assert [letter.key for letter in sent] == ["k"]


def test_what_pages_show_of_a_notifier_opens_nothing() -> None:
    shown = notifiers.shown(
        WebhookNotifier("https://x.example/services/T0/abc?token=1").described()
    )
    assert shown == "webhook at https://x.example"
    assert notifiers.shown(SlackNotifier(Secret("team")).described()) == "slack at secret team"
