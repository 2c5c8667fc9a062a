"""Ids in addresses, by the same rules as everywhere."""

from __future__ import annotations

from scheduler_app.rules.definition import FLOW_OR_TASK_ID, RUN_ID


class FlowId:
    """A flow id in an address."""

    regex = FLOW_OR_TASK_ID.pattern

    def to_python(self, value: str) -> str:
        """The id itself."""
        return value

    def to_url(self, value: str) -> str:
        """The id itself."""
        return value


class RunKey(FlowId):
    """A run's text id in an address."""

    regex = RUN_ID.pattern
