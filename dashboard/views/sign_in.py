"""The door: a name and a password for a session."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView
from django.core.exceptions import ValidationError

from scheduler_app.operations.sign_in import sign_in
from scheduler_app.rules.errors import NotAuthenticated, TooManyFailures

if TYPE_CHECKING:
    from django.http import HttpResponse


class SignInForm(AuthenticationForm):
    """Says whether the two fit together, or how long the next try has to wait."""

    wait_s = 0

    def clean(self) -> dict[str, Any]:
        """The account is in ``get_user()`` if they do."""
        username = self.cleaned_data.get("username")
        password = self.cleaned_data.get("password")
        if username is None or not password:
            return self.cleaned_data
        address = self.request.META.get("REMOTE_ADDR", "") if self.request else ""
        try:
            self.user_cache = sign_in(
                username=username, password=password, address=address, request=self.request
            )
        except TooManyFailures as error:
            self.wait_s = int(str(error.extra["retry_after_s"]))
            raise ValidationError(str(error), code=error.code) from error
        except NotAuthenticated as error:
            message = "This name and password do not fit together. Both are case-sensitive."
            raise ValidationError(message, code=error.code) from error
        self.confirm_login_allowed(self.user_cache)
        return self.cleaned_data


class SignInView(LoginView):
    """Begins a session."""

    template_name = "login.html"
    authentication_form = SignInForm

    def form_invalid(self, form: Any) -> HttpResponse:
        """The form again; one that has to wait says so in its status and headers too."""
        answer = super().form_invalid(form)
        if form.wait_s:
            answer.status_code = HTTPStatus.TOO_MANY_REQUESTS
            answer.headers["Retry-After"] = str(form.wait_s)
        return answer
