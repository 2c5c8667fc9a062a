"""What a reader prefers, kept in a cookie: the look of the pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.http import HttpResponse, HttpResponseRedirect
from django.views.decorators.http import require_POST

from dashboard.addresses import came_from
from dashboard.templatetags.dashboard import LOOKS

if TYPE_CHECKING:
    from django.http import HttpRequest

COOKIE_AGE_S = 400 * 24 * 3600  # as long as browsers keep any


@require_POST
def set_look(request: HttpRequest) -> HttpResponse:
    """The chosen look is in force; needs no login, since the login page has a look too."""
    response = HttpResponseRedirect(came_from(request))
    chosen = request.POST.get("look", "system")
    response.set_cookie(
        "daylight_look",
        chosen if chosen in LOOKS else "system",
        max_age=COOKIE_AGE_S,
        samesite="Lax",
        httponly=True,
        secure=settings.SESSION_COOKIE_SECURE,
    )
    return response
