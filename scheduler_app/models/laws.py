"""What the database itself never lets be otherwise, in few words.

PostgreSQL reads the check constraints of a table anew for each statement that writes to it, as text of some
hundred characters for each word that they have: as Django says them, they were a tenth of what claims and
finishes cost. So one array instead of a list of casts, and one equality instead of two cases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import F, Func
from django.db.models.lookups import Exact, GreaterThan, IsNull

if TYPE_CHECKING:
    from collections.abc import Sequence


def says(flag: str, column: str, *, false: Sequence[str], true: Sequence[str]) -> Any:
    """The flag is as the column's word has it, which is one of these."""
    words = ",".join([*false, *true])
    place = Func(
        F(column),
        template=f"array_position('{{{words}}}'::text[], %(expressions)s::text)",
        output_field=models.IntegerField(),
    )
    # A word that is none of them has no place: null is neither true nor false.
    return Func(
        GreaterThan(place, len(false)),
        F(flag),
        # In this order: Django compares these words with a migration's, which has them by the alphabet.
        arg_joiner=" IS NOT DISTINCT FROM ",
        template="(%(expressions)s)",
        output_field=models.BooleanField(),
    )


def same(one: Any, other: Any) -> Any:
    """Both are true, or neither is. Neither may be null."""
    return Exact(one, other)


def is_null(column: str) -> Any:
    """Whether the column holds nothing."""
    return IsNull(F(column), True)


def all_or_none(*columns: str) -> Any:
    """All of these columns hold something, or none does."""
    return Exact(
        Func(
            *(F(column) for column in columns),
            template=f"(num_nonnulls(%(expressions)s) %%%% {len(columns)})",
            output_field=models.IntegerField(),
        ),
        0,
    )
