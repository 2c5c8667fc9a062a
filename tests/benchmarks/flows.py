"""The flows that are measured; none has a limit of its own that it could reach."""

from __future__ import annotations

from typing import Final

FLOW_IDS: Final = ("warm", "chain_30", "chain_5", "single", "wakes_200")

FLOWS: Final = """
    from datetime import datetime

    from scheduler_app.authoring import Defer, TimeTrigger, flow, task

    @task
    def nothing(previous=None):
        pass

    @task
    def waits(ctx):
        raise Defer(TimeTrigger(at=datetime.fromisoformat(ctx.params["due_at"])), method="woken")

    @waits.method
    def woken(event):
        pass

    def chain(number):
        previous = None
        for _ in range(number):
            previous = nothing(previous)

    ROOM = {"max_active_tasks": 100_000, "max_active_runs": 1000}

    @flow(**ROOM)
    def warm():
        for _ in range(100):
            nothing()

    @flow(**ROOM)
    def chain_30():
        chain(30)

    @flow(**ROOM)
    def chain_5():
        chain(5)

    @flow(**ROOM)
    def single():
        nothing()

    @flow(**ROOM, params={"due_at": "2100-01-01T00:00:00+00:00"})
    def wakes_200():
        for _ in range(200):
            waits()
"""

# Each in a file of its own, and there only while it is measured.
FAN: Final = """
    from scheduler_app.authoring import flow, task

    @task
    def first():
        pass

    @task
    def nothing(previous):
        pass

    @task
    def last(previous):
        pass

    @flow(max_active_tasks=100_000)
    def fan_{width}():
        begun = first()
        last([nothing(begun) for _ in range({width})])
"""

# The same order, and nothing that one hands to another.
ORDERED: Final = """
    from scheduler_app.authoring import flow, task

    @task
    def nothing():
        pass

    @flow(max_active_tasks=100_000)
    def ordered_{width}():
        first, last = nothing(), nothing()
        for _ in range({width}):
            first >> nothing() >> last
"""

WIDE: Final = """
    from scheduler_app.authoring import flow, task

    @task
    def nothing():
        pass

    @flow(max_active_tasks=100_000)
    def wide_{width}():
        for _ in range({width}):
            nothing()
"""

# One task for each element of a list that is known at run time.
MAPPED: Final = """
    from scheduler_app.authoring import flow, task

    @task
    def numbers():
        return list(range({width}))

    @task
    def nothing(number):
        pass

    @flow(max_active_tasks=100_000)
    def mapped_{width}():
        nothing.map(number=numbers())
"""
