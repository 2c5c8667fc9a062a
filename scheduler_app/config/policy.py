"""The header that tells browsers what pages may load."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from csp.constants import HEADER
from csp.middleware import CheckableLazyObject, CSPMiddleware
from csp.utils import build_policy
from django.conf import settings

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponseBase


class PolicyMiddleware(CSPMiddleware):
    """As django-csp's own, which puts the policy together anew for each answer, twice.

    Here it is put together once, for all answers whose view says nothing else of it.
    """

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        """The answer has the header."""
        asks_for_nonce = getattr(request, "_csp_nonce", None) is not None
        says_otherwise = any(name.startswith("_csp_") for name in vars(response))
        if asks_for_nonce or says_otherwise or settings.DEBUG:
            return super().process_response(request, response)
        response.headers.setdefault(HEADER, _policy())
        # Whoever asks for a nonce from now on is told that it is too late, as by django-csp.
        vars(request)["csp_nonce"] = CheckableLazyObject(self._csp_nonce_post_response)
        return response


@cache
def _policy() -> str:
    return build_policy()
