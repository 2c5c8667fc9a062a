"""The columns of standing: current, or filtered with a code and the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models import F, Q

from scheduler_app.models import laws

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMES_PAGES: Final = 16  # of 8 KiB: some hundreds of rows
# How an index over times knows what stands in a few pages: the least and the greatest, or, by its bits,
# which of so many different values may be among them.
TIMES: Final = "timestamptz_minmax_ops"
NUMBERS: Final = "int4_minmax_ops"
LONG_NUMBERS: Final = "int8_minmax_ops"
WORDS: Final = "text_bloom_ops(n_distinct_per_range=64)"
FEW_WORDS: Final = "text_bloom_ops(n_distinct_per_range=16)"
KEYS: Final = "text_bloom_ops(n_distinct_per_range=600)"  # each row has its own
NUMBERED: Final = "int8_bloom_ops(n_distinct_per_range=64)"
IDS: Final = "uuid_bloom_ops(n_distinct_per_range=64)"


class Standing(models.Model):
    """A record that is current (``filter_code`` null) or filtered, and then says why.

    Written only by ``transitions/``, in the transaction that causes it. The rule set is
    ``rules/visibility.py``.
    """

    filter_code = models.CharField(max_length=40, null=True, blank=True)  # noqa: DJ001 - null means current, '' would be a code
    filtered_at = models.DateTimeField(null=True, blank=True)
    # rule, compared values, operation, shard, token
    filter_detail = models.JSONField(null=True, blank=True)
    # id of the record of the same kind that replaced this one, as text; null where none did
    superseded_by = models.CharField(max_length=64, null=True, blank=True)  # noqa: DJ001 - null means none

    class Meta:
        abstract = True


def standing_complete(table: str) -> models.CheckConstraint:
    """All of code, time and detail are set, or none: a filtered row always says why."""
    return models.CheckConstraint(
        condition=laws.all_or_none("filter_code", "filtered_at", "filter_detail"),
        name=f"{table}_standing_complete",
    )


def filtered_index(table: str, *carried: str) -> models.Index:
    """Serves ``filtered=only`` and the counts by reason; holds filtered rows alone.

    ``carried``: what those counts are asked for by, so that they need look at nothing else. Nothing that a
    claim or a beat writes: it would stand in the way of updates in place of every row.
    """
    return models.Index(
        fields=["filter_code", "id"],
        include=carried or None,
        condition=Q(filter_code__isnull=False),
        name=f"{table}_filtered",
    )


def filtered_at_index(table: str, *carried: str) -> models.Index:
    """Serves the newest filtered records of every noun together; holds filtered rows alone.

    ``carried``: with the reason, what tells of which flow a row is, and which row it is. So the records of a
    flow, and their numbers by hour, are found among all others without a look at one of those.
    """
    return models.Index(
        F("filtered_at").desc(nulls_last=True),  # as lists order a column that may be null
        include=["filter_code", *carried],
        condition=Q(filter_code__isnull=False),
        name=f"{table}_filtered_at",
    )


def times_index(table: str, *columns: str, finds: Mapping[str, str] | None = None) -> BrinIndex:
    """Serves ranges of times and the newest by a time; costs its writers next to nothing.

    It knows the least and the greatest of each few pages, and rows come in about the order of time. It
    does not stand in the way of updates in place. ``finds``: columns, with how they are known, of which a
    value that few pages or none have is found without a look at all others.
    """
    others = finds or {}
    return BrinIndex(
        fields=[*columns, *others],
        opclasses=[*(TIMES for _ in columns), *others.values()] if others else (),
        autosummarize=True,
        pages_per_range=TIMES_PAGES,
        name=f"{table}_times",
    )
