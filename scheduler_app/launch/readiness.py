"""Whether a stack is ready: every component gets on, the pages answer, the flow folders were read."""

from __future__ import annotations

import http.client
import socket
from typing import TYPE_CHECKING, Final

from django.db.models import F

from scheduler_app.models import Job

if TYPE_CHECKING:
    from collections.abc import Mapping, Set

WEB_ANSWER_S: Final = 2.0


def missing(children: Mapping[str, int], *, port: int) -> list[str]:
    """What the stack still waits for, in words; empty when it is ready.

    ``children`` are names and pids; the pages are asked once everything else is there. A component is healthy once its job row shows that its loop
    got on after it had started; the first scan is in the row of a scheduler.
    """
    at_work = _at_work(set(children.values()))
    waiting = [name for name, pid in children.items() if pid not in at_work]
    if not any(at_work[pid] for pid in at_work):
        waiting.append("the first scan of the flow folders")
    if not waiting and not _web_answers(port):
        waiting.append(f"an answer of http://127.0.0.1:{port}/healthz")
    return waiting


def _at_work(pids: Set[int]) -> dict[int, bool]:
    """The processes whose loop got on, and for each whether it has read the flow folders."""
    rows = Job.objects.filter(
        pid__in=pids,
        hostname=socket.gethostname(),
        ended_at__isnull=True,
        state="running",
        progress_at__gt=F("started_at"),
    )
    return {pid: "catalog" in detail for pid, detail in rows.values_list("pid", "detail")}


def _web_answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WEB_ANSWER_S)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
