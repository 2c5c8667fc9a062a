"""Ending a task as skipped, from inside."""

from __future__ import annotations


class Skip(BaseException):
    """Raised in a task: it ends as skipped, and so does what its trigger rule skips with it.

    Not an ``Exception``, so that a task's own ``except Exception`` does not catch it. No try follows.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason or "It said that there is nothing to do."

    def __str__(self) -> str:
        """Why."""
        return self.reason
