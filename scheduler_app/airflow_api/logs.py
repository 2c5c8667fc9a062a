"""What a try printed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from django.http import HttpResponse
from rest_framework.response import Response

from scheduler_app.airflow_api.task_instances import attempts_of, instance_of
from scheduler_app.airflow_api.views import AirflowView
from scheduler_app.queries.logs import PAGE_BYTES_MAX, read_log
from scheduler_app.rules.errors import NotFound

if TYPE_CHECKING:
    from rest_framework.request import Request

    from scheduler_app.queries.attempts import AttemptRow

NDJSON: Final = "application/x-ndjson"
LOG_PAGES_MAX: Final = 8  # of each attempt: beyond any cap of a log


class Log(AirflowView):
    """The log of one try: of each attempt that it took, oldest first."""

    def get(
        self,
        request: Request,
        dag_id: str,
        run_id: str,
        task_id: str,
        number: int,
        map_index: int | None = None,
    ) -> Response | HttpResponse:
        """Lines; NDJSON for who accepts that, else JSON."""
        row = instance_of(self.scope, request, dag_id, run_id, task_id, map_index)
        tried = [one for one in attempts_of(self.scope, row) if one.try_number == number]
        if not tried:
            message = f"TaskInstance not found: task {task_id} has no try {number}"
            raise NotFound(message)
        lines: list[dict[str, Any]] = []
        for attempt in tried:
            lines += self._lines(attempt, has_others=len(tried) > 1)
        if NDJSON in request.headers.get("Accept", ""):
            text = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
            return HttpResponse(text, content_type=NDJSON)
        return Response({"content": lines, "continuation_token": None})

    def _lines(self, attempt: AttemptRow, *, has_others: bool) -> list[dict[str, Any]]:
        data = bytearray()
        for _ in range(LOG_PAGES_MAX):
            page = read_log(self.scope, attempt.id, start=len(data), limit=PAGE_BYTES_MAX)
            data += page.data
            if not page.data or page.next_offset >= page.size:
                break
        text = data.decode("utf-8", "replace").replace("\x00", "\\x00")
        lines: list[dict[str, Any]] = [{"event": line} for line in text.splitlines()]
        if has_others:
            ends = attempt.outcome or attempt.state
            lines.insert(0, {"event": f"::group::attempt {attempt.id} ({ends})"})
            lines.append({"event": "::endgroup::"})
        return lines
