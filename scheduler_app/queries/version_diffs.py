"""The source of a version, and what differs between two versions of a flow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from django.db.models import Q

from scheduler_app.models import Bundle, FlowVersion
from scheduler_app.processes import bundles
from scheduler_app.queries import flow_versions, flows, runs
from scheduler_app.rules import version_diff
from scheduler_app.rules.definition import from_dict
from scheduler_app.rules.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler_app.queries.flow_versions import FlowVersionDetail, FlowVersionRow
    from scheduler_app.queries.scope import Scope
    from scheduler_app.rules.version_diff import VersionDiff

DIGEST_CHARACTERS_MIN: Final = 6  # of a digest that is not given whole
DIGEST_CHARACTERS: Final = 64
NUMBER_DIGITS_MAX: Final = 9  # more of them are the beginning of a digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The code of a version: the flow file, and what it imports from its folder."""

    main_path: str
    files: Mapping[str, bytes]  # by path in the flow folder
    is_damaged: bool = False  # what is stored cannot be read

    def in_order(self) -> list[tuple[str, bytes]]:
        """The files with their content: the flow file, then the others by path."""
        return sorted(self.files.items(), key=lambda one: (one[0] != self.main_path, one[0]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two versions of one flow, and what differs."""

    old: FlowVersionDetail
    new: FlowVersionDetail
    diff: VersionDiff
    is_source_damaged: bool = False  # the code of one of them cannot be read; it is not compared

    @property
    def differ(self) -> bool:
        """Whether anything differs."""
        return bool(self.diff) or self.is_source_damaged


@dataclass(frozen=True, slots=True, kw_only=True)
class CameWith:
    """What a version changed of the one before it."""

    old_number: int
    diff: VersionDiff  # without code
    is_code_new: bool

    @property
    def told(self) -> str:
        """In a line."""
        said = [self.diff.told] if self.diff else []
        return ", ".join([*said, *(["code"] if self.is_code_new else [])]) or "nothing that is told"


def source_of(version: FlowVersionRow) -> Source:
    """The code of a version that the reader may see."""
    bundle = Bundle.objects.get(digest=version.bundle)
    try:
        main_path, files = bundles.unpack(bytes(bundle.archive))
    except InvalidInput:
        return Source(main_path=bundle.main_path, files={}, is_damaged=True)
    return Source(main_path=main_path, files=files)


def text_of(content: bytes) -> str | None:
    """The text of a file; null for bytes that are none."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return None if "\x00" in text else text


def named(scope: Scope, flow_id: str, text: str) -> FlowVersionDetail:
    """The version of the flow that the text names: its number, or the beginning of its digest.

    Raises ``NotFound``, and ``InvalidInput`` for what names none.
    """
    said = text.strip().lower()
    if said.isdecimal() and len(said) <= NUMBER_DIGITS_MAX:
        return flow_versions.by_number(scope, flow_id, int(said))
    is_digest = DIGEST_CHARACTERS_MIN <= len(said) <= DIGEST_CHARACTERS and not set(said) - set(
        "0123456789abcdef"
    )
    if not is_digest:
        raise InvalidInput(
            f"{text[:80]!r} names no version. Give its number, or at least"
            f" {DIGEST_CHARACTERS_MIN} characters of its digest."
        )
    found = scope.owned(FlowVersion.objects.filter(flow_id=flow_id), "flow_id").filter(
        Q(digest__startswith=said)
    )
    numbers = list(found.order_by("number").values_list("number", flat=True)[:2])
    if not numbers:
        raise NotFound(f"Flow {flow_id} has no version whose digest begins with {said}.")
    if len(numbers) > 1:
        raise InvalidInput(
            f"{said} is the beginning of several digests, as of versions {numbers[0]} and"
            f" {numbers[1]}. Give more of it."
        )
    return flow_versions.by_number(scope, flow_id, numbers[0])


def of_flow(
    scope: Scope, flow_id: str, *, old: str = "", new: str = "", run_id: str = ""
) -> Comparison:
    """Two versions of the flow compared.

    ``new`` is the newest one unless it is named; ``old`` the one before ``new``, or with ``run_id``
    the version that the run is bound to. Raises ``NotFound`` and ``InvalidInput``.
    """
    if run_id and old:
        raise InvalidInput("Name an old version, or a run whose version that is; not both.")
    flow = flows.one(scope, flow_id)
    if new:
        newer = named(scope, flow_id, new)
    elif flow.version_id is not None:
        newer = flow_versions.one(scope, flow.version_id)
    else:
        raise NotFound(f"Flow {flow_id} has no version yet: its file was never free of faults.")
    if run_id:
        older = flow_versions.one(scope, runs.by_key(scope, flow_id, run_id).version_id)
    elif old:
        older = named(scope, flow_id, old)
    else:
        older = _before(scope, newer)
    return compare(older, newer)


def compare(old: FlowVersionDetail, new: FlowVersionDetail) -> Comparison:
    """What differs between two versions that the reader may see."""
    sources: Sequence[Source] = ()
    if old.bundle != new.bundle:
        sources = (source_of(old), source_of(new))
    is_damaged = any(source.is_damaged for source in sources)
    files = [{}, {}] if is_damaged or not sources else [dict(one.files) for one in sources]
    return Comparison(
        old=old,
        new=new,
        diff=version_diff.diff(
            old.graph(), new.graph(), old_sources=files[0], new_sources=files[1]
        ),
        is_source_damaged=is_damaged,
    )


def came_with(
    scope: Scope, flow_id: str, versions: Sequence[FlowVersionRow]
) -> dict[int, CameWith]:
    """What each of these versions changed, by its id; the first one of the flow has no entry.

    Of their code it is told only whether it differs: sources are not read.
    """
    numbers = {row.number for row in versions}
    rows = scope.owned(
        FlowVersion.objects.filter(
            flow_id=flow_id, number__in=numbers | {number - 1 for number in numbers}
        ),
        "flow_id",
    ).values_list("number", "id", "definition", "bundle_id")
    stored = {number: (pk, from_dict(raw), bundle) for number, pk, raw, bundle in rows}
    found = {}
    for number in numbers & stored.keys():
        if number - 1 not in stored:
            continue
        (_, old, old_bundle), (pk, new, new_bundle) = stored[number - 1], stored[number]
        difference = version_diff.diff(old, new)
        found[pk] = CameWith(
            old_number=number - 1, diff=difference, is_code_new=old_bundle != new_bundle
        )
    return found


def _before(scope: Scope, version: FlowVersionDetail) -> FlowVersionDetail:
    found = scope.owned(FlowVersion.objects.filter(flow_id=version.flow_id), "flow_id")
    before = (
        found.filter(number__lt=version.number)
        .order_by("-number")
        .values_list("id", flat=True)
        .first()
    )
    if before is None:
        raise NotFound(
            f"Version {version.number} is the first of flow {version.flow_id}: there is none before"
            " it to compare with."
        )
    return flow_versions.one(scope, before)
