"""Acts that need a reason: a sheet says what will follow, asks why, and acts when it is sent.

Without scripts the sheet is a page of its own; with them it opens as a dialog over the page that
led to it (``static/js/sheet.js``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.http import HttpResponseRedirect

from dashboard import answer
from dashboard.addresses import came_from
from scheduler_app.operations.reasons import REASON_CHARACTERS_MAX
from scheduler_app.rules import errors
from scheduler_app.rules.folded import lines_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from django.http import HttpRequest, HttpResponse

    from dashboard.answer import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One record that the act changes, or leaves alone."""

    name: str
    state: str
    effect: str  # a sentence, or why it is left alone
    number: int = 1  # of records that it stands for


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One more question of a sheet: a choice where it has ``choices``, else a line of text."""

    name: str
    label: str
    value: str = ""
    hint: str = ""
    choices: Sequence[tuple[str, str]] = ()  # value, words
    rows: int = 0  # of a text of several lines; 0: one line
    is_secret: bool = False  # is not shown while it is typed, nor ever again


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """What the reader is told before anything happens."""

    title: str  # names verb and object
    button: str  # names the effect
    effects: Sequence[str] = ()
    included: Sequence[Subject] = ()
    excluded: Sequence[Subject] = ()
    hidden: Sequence[tuple[str, str]] = ()  # names and values that come back with the form
    # What else is asked, under names that the act reads from the request.
    fields: Sequence[Field] = ()


def subjects(found: Iterable[Any], run_of: Sequence[str] = ()) -> tuple[Subject, ...]:
    """What an operation's plan says of each record; of many instances of a mapped task, at once."""
    several = list(found)
    if any(not hasattr(one, "map_index") for one in several):  # they are no task instances
        return tuple(Subject(name=o.name, state=o.state, effect=o.effect) for o in several)
    return tuple(
        Subject(name=one.name, state=one.state, effect=one.effect, number=one.number)
        for one in lines_of(several, run_of)
    )


def answer_sheet(
    request: HttpRequest,
    reading: Reading,
    *,
    sheet: Callable[[], Sheet],
    act: Callable[[str], str],
    back: str,
) -> HttpResponse:
    """The sheet; posted with a reason, the act is done and the reader is back where it began.

    ``act`` takes the reason and returns what is told afterwards. ``back`` is the address of the
    record. Raises what ``sheet`` and ``act`` raise, but for a faulty reason, which the sheet shows.
    """
    context: dict[str, Any] = {"back": back, "reason_max": REASON_CHARACTERS_MAX, "reason": ""}
    status = 200
    if request.method == "POST":
        context["reason"] = request.POST.get("reason", "")
        try:
            told = act(context["reason"])
        except errors.InvalidInput as error:
            context["error"] = str(error)
            status = 400
        else:
            messages.success(request, told)
            return HttpResponseRedirect(came_from(request, otherwise=back))
    context["next"] = request.POST.get("next") or request.GET.get("next") or back
    return answer.answer(
        request, "dashboard/act.html", reading, {**context, "sheet": sheet()}, status=status
    )
