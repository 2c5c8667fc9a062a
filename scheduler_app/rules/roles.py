"""What tasks are to the tasks around them: setup, teardown, compensation; what picks what goes on."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """What a task is to the tasks around it; most are ``work``."""

    WORK = "work"
    SETUP = "setup"  # makes what the tasks up to its teardown need
    TEARDOWN = "teardown"  # takes it away again, whatever became of the work
    COMPENSATION = "compensation"  # undoes what a group did that was given up


class Picks(StrEnum):
    """What a task's result says of the tasks after it."""

    NOTHING = ""
    BRANCH = "branch"  # which of its direct downstream go on; the others are skipped
    GATE = "gate"  # whether its direct downstream goes on; what comes after that by its own rules
    GATE_ALL = "gate_all"  # whether anything downstream of it goes on, whatever the rules there


class Running(StrEnum):
    """What becomes of the rest of a group when a member of it has failed."""

    WAIT = "wait"  # the others end as they would
    STOP = "stop"  # what runs is stopped, and nothing of it starts any more
