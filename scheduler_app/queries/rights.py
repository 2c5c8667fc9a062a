"""Who may decide what: the one place where rights to act are looked up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied

from scheduler_app.rules.errors import NotAllowed

if TYPE_CHECKING:
    from django.contrib.auth.base_user import AbstractBaseUser
    from django.contrib.auth.models import AnonymousUser

DECIDE_REVIEWS: Final = "scheduler_app.change_review"
SET_GUARDS: Final = "scheduler_app.change_guard"


def is_service(user: AbstractBaseUser | AnonymousUser | None) -> bool:
    """Whether what the user asks for is automatic: it is in the group of services."""
    if user is None or not user.is_authenticated:
        return False
    groups: Any = getattr(user, "groups", None)
    return groups is not None and bool(groups.filter(name=settings.SERVICES_GROUP).exists())


def check(user: Any, right: str) -> None:
    """Raises ``PermissionDenied`` unless the user has the right and is no service.

    What a guard has held is a person's to decide: a service would let itself pass.
    """
    if is_service(user):
        message = "A service may not decide what guards hold: ask a person."
        raise PermissionDenied(message)
    if not user.has_perm(right):
        message = f"This needs the permission {right}."
        raise PermissionDenied(message)


def check_named(name: str, right: str) -> None:
    """The same for who acts by name, on the command line. Raises ``NotAllowed``.

    A name without an account of Daylight is somebody who may reach the database anyhow, and passes.
    """
    account = get_user_model().objects.filter(username=name).first()
    if account is None:
        return
    try:
        check(account, right)
    except PermissionDenied as error:
        message = f"Account {name}: {error}"
        raise NotAllowed(message) from None


def may(user: Any, right: str) -> bool:
    """Whether ``check`` would let the user pass."""
    return not is_service(user) and bool(user.has_perm(right))
