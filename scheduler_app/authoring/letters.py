"""Letters: what a notifier tells somebody, as text from templates and as facts for programs."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

TEXT_CHARACTERS_MAX: Final = 10_000
SUBJECT_CHARACTERS_MAX: Final = 200

# What a callback is about, in a sentence.
_SAID: Final[Mapping[str, str]] = {
    "on_execute": "began",
    "on_retry": "failed and is retried",
    "on_success": "succeeded",
    "on_failure": "failed",
    "on_skipped": "was skipped",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """What is told. ``key`` is the same however often it is sent: receivers know doubles by it."""

    key: str
    event: str  # on_failure, ..., incident.opened, incident.reminder, incident.resolved, test
    subject: str  # one line
    text: str
    url: str = ""  # of the page that shows it; empty: the installation has told no address
    facts: Mapping[str, Any] = field(default_factory=dict)  # JSON values

    def body(self) -> dict[str, Any]:
        """The letter as JSON values."""
        return {
            "key": self.key,
            "event": self.event,
            "subject": self.subject,
            "text": self.text,
            "url": self.url,
            **self.facts,
        }


class Placeholders(string.Formatter):
    """``{run.flow_id}`` and the like from the context; what is not there stays as it was written.

    Only names: no call, no index, and nothing that begins with an underscore.
    """

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> tuple[Any, str]:
        """The value of a dotted name."""
        del args
        first, *rest = field_name.split(".")
        if any(not part.isidentifier() or part.startswith("_") for part in (first, *rest)):
            return f"{{{field_name}}}", field_name
        if first not in kwargs:
            return f"{{{field_name}}}", field_name
        value = kwargs[first]
        for part in rest:
            value = value.get(part) if isinstance(value, Mapping) else getattr(value, part, None)
        return ("-" if value is None else value), field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        """The value as text; a format is for times alone."""
        if isinstance(value, datetime):
            return value.strftime(format_spec or "%Y-%m-%d %H:%M:%S %Z")
        return str(value)

    def convert_field(self, value: Any, conversion: Any) -> Any:
        """The value itself: no conversions."""
        del conversion
        return value


def fault_of_template(template: object) -> str | None:
    """What is wrong with a template; ``None`` if nothing is."""
    if not isinstance(template, str):
        return "a template is a text"
    try:
        list(string.Formatter().parse(template))
    except ValueError as error:
        return f"{error}; write {{{{ and }}}} for plain braces"
    return None


def filled(template: str, context: Mapping[str, Any]) -> str:
    """The template with the context's values in it."""
    return Placeholders().vformat(template, (), dict(context))[:TEXT_CHARACTERS_MAX]


def one_line(text: str) -> str:
    """The text without line breaks, as a subject must be."""
    return " ".join(text.split())[:SUBJECT_CHARACTERS_MAX]


def letter_of(context: Mapping[str, Any], *, subject: str | None, text: str | None) -> Letter:
    """The letter of a callback's context, by these templates or by the usual ones."""
    run, ti = context["run"], context["ti"]
    on = str(context["callback"])
    exception = context["exception"]
    url = str(context.get("url") or "")
    group_id = context.get("group")
    what = f"{run.flow_id}.{ti.task_id}" if ti is not None else run.flow_id
    if group_id is not None:
        what = f"{run.flow_id}, group {group_id},"
    usual = one_line(f"{what} {_SAID.get(on, on)}: {run.run_id}")
    lines = [f"{what} {_SAID.get(on, on)}.", f"Run {run.run_id}"]
    if ti is not None:
        lines[1] += f", try {ti.try_number}"
    if exception is not None:
        lines.append(f"{_name_of(exception)}: {exception}")
    elif context["reason"]:
        lines.append(str(context["reason"]))
    if url:
        lines.append(url)
    return Letter(
        key=str(context.get("callback_key") or ""),
        event=on,
        subject=one_line(filled(subject, context)) if subject is not None else usual,
        text=filled(text, context) if text is not None else "\n".join(lines),
        url=url,
        facts={
            "flow_id": run.flow_id,
            "run_id": run.run_id,
            "logical_date": None if run.logical_date is None else run.logical_date.isoformat(),
            "state": run.state if ti is None else ti.state,
            "task_id": None if ti is None else ti.task_id,
            "group": group_id,
            "map_index": None if ti is None else ti.map_index,
            "try_number": None if ti is None else ti.try_number,
            "reason": context["reason"],
            "exception": None
            if exception is None
            else {"type": _name_of(exception), "message": str(exception)[:TEXT_CHARACTERS_MAX]},
        },
    )


def _name_of(exception: BaseException) -> str:
    return str(getattr(exception, "type", "") or type(exception).__name__)
