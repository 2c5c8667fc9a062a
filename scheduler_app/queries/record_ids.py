"""Records found by the ids of their own tables, where another table or statement tells which they are.

A list of ids is made first: within an OR, PostgreSQL asks an index for none of a subquery's rows.
"""

from __future__ import annotations

from typing import Final

from django.db.models import BooleanField, F, Func, Q

from scheduler_app.models.record import NUMBERED
from scheduler_app.rules import visibility

# Keys as a person's mark has them: noun and id, with a colon between.
REVIEWED: Final = (
    "(SELECT split_part(key, ':', 1) AS noun, substr(key, strpos(key, ':') + 1) AS record_id"
    " FROM reviewed) k"
)


def told_by(source: str, *, with_jobs: bool) -> Q:
    """The records whose ``noun`` and ``record_id`` the source, SQL of our own, has. No index finds jobs so."""
    found = _any_of(source, visibility.ATTEMPT, "attempt_id", "record_id::uuid")
    for noun in NUMBERED:
        found |= _any_of(source, noun, "number", "record_id::bigint")
    for noun in (visibility.FLOW, visibility.JOB) if with_jobs else (visibility.FLOW,):
        found |= _any_of(source, noun, "record_id", "record_id")
    return found


def _any_of(source: str, noun: str, column: str, told: str) -> Q:
    ids = f"ARRAY(SELECT {told} FROM {source} WHERE noun = '{noun}')"  # noqa: S608 - names of ours
    is_one = Func(F(column), template=f"%(expressions)s = ANY({ids})", output_field=BooleanField())
    return Q(noun=noun) & Q(is_one)
