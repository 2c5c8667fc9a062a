"""What a reader may see: the one place where reading rights are decided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from django.db.models import Model, Q, QuerySet

if TYPE_CHECKING:
    from django.contrib.auth.base_user import AbstractBaseUser
    from django.contrib.auth.models import AnonymousUser

ModelT = TypeVar("ModelT", bound=Model)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The flows that a reader may see, and whether rows without a flow are among them.

    ``flow_ids`` None means every flow. ``sees_shared`` covers what belongs to no flow: leases,
    jobs, pools, and ghosts whose parents nobody knows.
    """

    flow_ids: frozenset[str] | None
    sees_shared: bool

    @property
    def sees_anything(self) -> bool:
        """Whether there is anything at all to see: somebody who is logged in."""
        return self != NOTHING

    def owned(self, rows: QuerySet[ModelT], flow: str) -> QuerySet[ModelT]:
        """The rows whose flow (at the lookup ``flow``) is in scope, ghosts as the scope says."""
        if self.flow_ids is None and self.sees_shared:
            return rows
        ownerless = Q(**{f"{flow}__isnull": True})
        if self.flow_ids is None:
            return rows.exclude(ownerless)
        mine = Q(**{f"{flow}__in": self.flow_ids})
        return rows.filter(mine | ownerless if self.sees_shared else mine)

    def shared(self, rows: QuerySet[ModelT]) -> QuerySet[ModelT]:
        """The rows if the scope covers what belongs to no flow, else none."""
        return rows if self.sees_shared else rows.none()


EVERYTHING = Scope(flow_ids=None, sees_shared=True)
NOTHING = Scope(flow_ids=frozenset(), sees_shared=False)


def visible_flows(user: AbstractBaseUser | AnonymousUser | None) -> Scope:
    """What this user may see; every list, detail, count, export, log and live topic starts here.

    Today each active user sees every flow, and nobody else sees anything.
    """
    if user is None or not user.is_authenticated or not _is_active(user):
        return NOTHING
    return EVERYTHING


def _is_active(user: Any) -> bool:
    return bool(user.is_active)
