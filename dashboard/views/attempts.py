"""Attempts: the list, one with all its ids, and the bytes of its log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.http import HttpResponse

from dashboard import answer, listing
from dashboard.logs import log_of
from scheduler_app.queries import artifacts, attempts, executor_events, leadership, logs, saving
from scheduler_app.queries.filters import AttemptFilter, EventFilter
from scheduler_app.rules import errors
from scheduler_app.rules.states import AttemptKind

if TYPE_CHECKING:
    from uuid import UUID

    from django.http import HttpRequest

    from dashboard.answer import Reading

FIELDS: Final = (
    "flow_id",
    "run_id",
    "task_id",
    "kind",
    "state",
    "outcome",
    "hostname",
    "issued_at_gte",
)
OF_TASKS: Final = (AttemptKind.TASK.value,)
OF_CALLBACKS: Final = (AttemptKind.CALLBACK.value,)
OFFSET_DIGITS_MAX: Final = 15


@answer.page
def attempt_list(request: HttpRequest) -> HttpResponse:
    """Attempts, newest first."""
    reading = answer.begin(request)
    found = listing.read(
        request, reading, AttemptFilter, attempts.page, noun="attempts", fields=FIELDS
    )
    context = {"list": found, "with_run": True}
    return answer.answer(request, "dashboard/attempt_list.html", reading, context, topics=["runs"])


def callbacks_of(
    request: HttpRequest, reading: Reading, *, fields: tuple[str, ...] = (), **whose: Any
) -> dict[str, Any]:
    """The callbacks of a run or a task instance, for the tab of that name."""
    found = listing.read(
        request,
        reading,
        AttemptFilter,
        attempts.page,
        noun="callbacks",
        fields=(*fields, "callback_on", "state", "outcome"),
        kind=OF_CALLBACKS,
        **whose,
    )
    return {"list": found}


@answer.page
def attempt_detail(request: HttpRequest, attempt_id: UUID) -> HttpResponse:
    """One attempt: who ran it where, what came of it, what witnesses said, what it printed."""
    reading = answer.begin(request)
    attempt = attempts.one(reading.scope, attempt_id)
    found = listing.read(
        request,
        reading,
        EventFilter,
        executor_events.page,
        noun="executor events",
        attempt_id=(attempt_id,),
    )
    context = {
        "attempt": attempt,
        "list": found,
        "log": log_of(reading, attempt),
        "near": leadership.near_attempt(reading.scope, attempt_id),
        "pushed": saving.pushed_by(attempt_id),
        "artifacts": artifacts.of_attempt(attempt_id) if attempt.ti else (),
    }
    topics = ["runs"]
    if attempt.ti:
        topics = [f"ti:{attempt.ti}"]
    elif attempt.run:
        topics = [f"run:{attempt.run}"]
    return answer.answer(request, "dashboard/attempt_detail.html", reading, context, topics=topics)


@answer.page
def attempt_log(request: HttpRequest, attempt_id: UUID) -> HttpResponse:
    """The log's bytes from ``?from=``; without it the whole stored log, as a download."""
    reading = answer.begin(request)
    asked = request.GET.get("from")
    if asked is None:
        response = HttpResponse(
            _whole(reading, attempt_id), content_type="text/plain; charset=utf-8"
        )
        response["Content-Disposition"] = f'attachment; filename="{attempt_id}.log"'
        return response
    if not asked.isdecimal() or len(asked) > OFFSET_DIGITS_MAX:
        raise errors.InvalidInput("from: not a byte offset (a whole number).", parameter="from")
    page = logs.read_log(reading.scope, attempt_id, start=int(asked))
    # Never HTML, whatever the bytes are.
    response = HttpResponse(page.data, content_type="text/plain; charset=utf-8")
    is_complete = page.ended and page.next_offset >= page.size
    response["Daylight-Log-Next"] = str(page.next_offset)
    response["Daylight-Log-Live"] = "0" if is_complete else "1"
    response["Cache-Control"] = "no-store"
    return response


def _whole(reading: answer.Reading, attempt_id: UUID) -> bytes:
    """All that is stored; the worker caps a log, so it fits."""
    parts: list[bytes] = []
    offset = 0
    while True:
        page = logs.read_log(reading.scope, attempt_id, start=offset, limit=logs.PAGE_BYTES_MAX)
        parts.append(page.data)
        offset = page.next_offset
        if not page.data or offset >= page.size:
            return b"".join(parts)
