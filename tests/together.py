"""Threads with a connection each that start at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from scheduler_app.processes import database


def together(acts: Sequence[Callable[[psycopg.Connection[Any]], Any]]) -> list[Any]:
    """What each act returned, in order; all ran at once, each on a connection of its own."""
    barrier = threading.Barrier(len(acts))
    answers: list[Any] = [None] * len(acts)
    faults: list[BaseException] = []

    def run(place: int, act: Callable[[psycopg.Connection[Any]], Any]) -> None:
        try:
            with database.connect("worker") as connection:
                connection.execute("SELECT 1")
                barrier.wait(timeout=10)
                answers[place] = act(connection)
        except BaseException as fault:  # noqa: BLE001 - told in the test's own thread
            faults.append(fault)
            barrier.abort()

    threads = [threading.Thread(target=run, args=(place, act)) for place, act in enumerate(acts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    if faults:
        raise faults[0]
    return answers
