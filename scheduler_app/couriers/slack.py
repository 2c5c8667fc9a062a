"""A letter as the incoming webhooks of Slack, and of what understands the same, want it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scheduler_app.authoring.letters import Letter


def content(letter: Letter, *, channel: str | None) -> dict[str, Any]:
    """The JSON body: nothing in the letter's text is taken for markup, links or mentions."""
    lines = [f"*{_plain(letter.subject)}*", _plain(letter.text)]
    if letter.url and letter.url not in letter.text:
        lines.append(f"<{letter.url}>")
    said: dict[str, Any] = {"text": "\n".join(lines)}
    if channel is not None:
        said["channel"] = channel
    return said


def _plain(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
