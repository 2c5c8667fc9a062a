"""What a new holder finds in a shard: every live attempt is gone over before it dispatches there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings

from scheduler_app.transitions.take_over import record_take_over

if TYPE_CHECKING:
    import psycopg

    from scheduler_app.scheduler.leases import Leases


def take_over(
    connection: psycopg.Connection[Any], *, leases: Leases, new_terms: dict[int, int]
) -> None:
    """Each newly held shard has a take-over row with one item per live attempt.

    The decisions are notes of what the sweeps do under the new token: publish, wait, adopt, or
    watch a silent one until it is lost. Adoption changes nothing on the attempt. Raises ``Fenced``.
    """
    if not new_terms:
        return
    with connection.transaction():
        leases.prove(connection, new_terms)
        for shard, token in sorted(new_terms.items()):
            record_take_over(
                connection,
                shard=shard,
                holder=leases.holder,
                new_token=token,
                dead_after_s=settings.HEARTBEAT_DEAD_AFTER_S,
            )
