"""From a request to a page: who reads, at which revision, whole or as a fragment, and what goes wrong."""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec

import psycopg
from django.contrib.auth.decorators import login_required
from django.db import InterfaceError, OperationalError
from django.http import HttpResponse, HttpResponseNotModified
from django.template.loader import render_to_string
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from dashboard.addresses import is_lens_on
from scheduler_app.queries import freezes, health, incidents
from scheduler_app.queries.scope import Scope, visible_flows
from scheduler_app.rules import errors
from scheduler_app.rules.freezing import ScopeKind, task_scope

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from django.http import HttpRequest

P = ParamSpec("P")

BANNER: Final = "dashboard/parts/freezes.html"
BADGE: Final = "dashboard/parts/incident_badge.html"  # of the top bar, which lies outside the page
FRAGMENT: Final = "page"  # the name of the partial that a live refresh asks for
# What differs between two renderings of the same facts.
VOLATILE: Final = re.compile(
    r'data-rev="\d*"|name="csrfmiddlewaretoken" value="[^"]*"|(?<=data-since=)"[^"]*">[^<]*'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one page reads: the reader's scope, and the revision that everything read is at least of."""

    scope: Scope
    rev: int  # the database's clock in microseconds, taken before anything was read
    is_lens_on: bool

    @property
    def now(self) -> datetime:
        """The database's clock when the reading began."""
        return datetime.fromtimestamp(self.rev / 1_000_000, UTC)


def begin(request: HttpRequest) -> Reading:
    """A reading for this request's user."""
    return Reading(
        scope=visible_flows(request.user),
        rev=health.revision(),
        is_lens_on=is_lens_on(request),
    )


def page(
    view: Callable[Concatenate[HttpRequest, P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """The view needs a login, answers GET and HEAD, and turns known errors into pages."""
    return translated(login_required(require_safe(view)))


def act(
    view: Callable[Concatenate[HttpRequest, P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """The view needs a login, answers POST, and turns known errors into pages."""
    return translated(login_required(require_POST(view)))


def sheet(
    view: Callable[Concatenate[HttpRequest, P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """The view needs a login, previews by GET and acts by POST, and turns known errors into pages."""
    return translated(login_required(require_http_methods(["GET", "HEAD", "POST"])(view)))


def translated(
    view: Callable[Concatenate[HttpRequest, P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """The view's known errors become pages."""

    @functools.wraps(view)
    def answered(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except errors.NotFound as error:
            return fault(request, error, status=404)
        except errors.InvalidInput as error:
            return fault(request, error, status=400)
        except errors.SchedulerError as error:
            return fault(request, error, status=409)
        except (
            OperationalError,
            InterfaceError,
            # of operations, which write over the driver's own connection
            psycopg.OperationalError,
            psycopg.InterfaceError,
        ):
            # Without its database the product still says so, and who can mend it.
            return HttpResponse(render_to_string("503.html"), status=503)

    return answered


def fault(request: HttpRequest, error: errors.SchedulerError, *, status: int) -> HttpResponse:
    """The page that says what is wrong and what to do."""
    context = {"message": str(error), "code": error.code, "status": status}
    return HttpResponse(render_to_string("dashboard/fault.html", context, request), status=status)


def answer(
    request: HttpRequest,
    template: str,
    reading: Reading,
    context: Mapping[str, Any],
    *,
    topics: Collection[str] = (),
    status: int = 200,
) -> HttpResponse:
    """The page, or its fragment for a live refresh: 304 when the reader has seen just that."""
    is_fragment = request.headers.get("HX-Request") == "true"
    full = {
        **context,
        **_frozen(reading, context),
        "open_incidents": incidents.open_count(reading.scope),
        "is_fragment": is_fragment,
        "reading": reading,
        "now": reading.now,
        "topics": " ".join(topics),
    }
    name = f"{template}#{FRAGMENT}" if is_fragment else template
    body = render_to_string(name, full, request)
    if is_fragment:
        # As base.html has it above the page.
        body = render_to_string(BANNER, full, request) + body
        body += render_to_string(BADGE, full, request)
    response = HttpResponse(body, status=status)
    if is_fragment:
        etag = f'"{hashlib.sha256(VOLATILE.sub("", body).encode()).hexdigest()[:32]}"'
        if request.headers.get("If-None-Match") == etag:
            response = HttpResponseNotModified()
        response["ETag"] = etag
    response["Daylight-Rev"] = str(reading.rev)
    response["Cache-Control"] = "private, no-cache"
    patch_vary_headers(response, ("HX-Request", "Cookie"))
    return response


def _frozen(reading: Reading, context: Mapping[str, Any]) -> dict[str, Any]:
    """The live freezes that touch what the page is about, and the one that is of just that."""
    found = freezes.live(reading.scope)
    ti, run, flow = (context.get(name) for name in ("ti", "run", "flow"))
    task_id = context.get("task_id")  # of a page about a mapped task of a run
    own = ("", "")
    if found and ti is not None:
        own = (ScopeKind.TASK_INSTANCE.value, str(ti.id))
        found = freezes.touching(
            found, flow_id=ti.flow_id, shard=ti.shard, run=ti.run, ti=ti.id, task_id=ti.task_id
        )
    elif found and run is not None and task_id is not None:
        own = (ScopeKind.TASK.value, task_scope(run.id, task_id).id)
        found = freezes.touching(
            found, flow_id=run.flow_id, shard=run.shard, run=run.id, task_id=task_id
        )
    elif found and run is not None:
        own = (ScopeKind.RUN.value, str(run.id))
        found = freezes.touching(found, flow_id=run.flow_id, shard=run.shard, run=run.id)
    elif found and flow is not None:
        own = (ScopeKind.FLOW.value, flow.flow_id)
        found = freezes.touching(found, flow_id=flow.flow_id, shard=flow.shard)
    return {
        "freezes": found,
        "own_freeze": next((f for f in found if (f.scope_kind, f.scope_id) == own), None),
    }
