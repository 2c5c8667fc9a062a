"""What sending a letter may come to, other than having sent it."""

from __future__ import annotations

from scheduler_app.rules.errors import SchedulerError


class NotSent(SchedulerError):
    """The letter was not sent. Do not raise directly; the children say whether to try again."""

    code = "not_sent"
    may_try_again = False


class NotSendable(NotSent):
    """The letter cannot be sent so: trying again would come to the same."""


class NotReached(NotSent):
    """Who should take the letter did not: it may be tried again."""

    may_try_again = True
