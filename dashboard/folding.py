"""Which groups of a flow a page shows folded, and what its address says of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler_app.rules.definition import FlowDefinition, GroupDefinition

NONE_FOLDED: Final = "-"  # no id of a group
PARAMETER: Final = "folded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Folding:
    """The groups of a flow, and which of them are shown as one."""

    groups: tuple[GroupDefinition, ...]
    folded: frozenset[str]

    @property
    def parents(self) -> Mapping[str, str]:
        """By group, the one around it; empty for none."""
        return {group.group_id: group.parent for group in self.groups}

    def around(self, group_id: str) -> list[str]:
        """The group and those around it, outer first."""
        parents, found = self.parents, []
        while group_id in parents:
            found.append(group_id)
            group_id = parents[group_id]
        return found[::-1]

    def shown_as(self, group_id: str) -> str | None:
        """The folded group that a task of this group is shown as; null: the task stands itself."""
        return next((one for one in self.around(group_id) if one in self.folded), None)

    def toggled(self, group_id: str) -> str:
        """What the address says once the group is folded, or is not any more."""
        return told(self.folded ^ {group_id})


def folding_of(definition: FlowDefinition, said: str, *, by_default: bool) -> Folding:
    """What the address says of the groups; where it says nothing all, or none, are folded."""
    known = [group.group_id for group in definition.groups]
    if said:
        folded = frozenset(said.split(",")) & frozenset(known)
    else:
        folded = frozenset(known) if by_default else frozenset()
    return Folding(groups=definition.groups, folded=folded)


def told(folded: Sequence[str] | frozenset[str]) -> str:
    """What the address says of these folded groups."""
    return ",".join(sorted(folded)) or NONE_FOLDED
