"""Callbacks of tasks and flows: how the stored definition tells of them, and how one is called."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from scheduler_app.rules.callbacks import OF_TASK, CallbackOn

NAME_CHARACTERS_MAX: Final = 100

Callback = Callable[[Mapping[str, Any]], object]
Callbacks = Mapping[CallbackOn, tuple[Callback, ...]]


def taken_from(fields: dict[str, Any]) -> Callbacks:
    """The callbacks among the fields of a task or flow, which are taken out of them."""
    return {on: found for on in OF_TASK if (found := fields.pop(on.value, ()))}


def names_of(callbacks: Callbacks) -> dict[str, tuple[str, ...]]:
    """How the stored definition tells of the callbacks."""
    return {on.value: tuple(map(name_of, found)) for on, found in callbacks.items()}


def name_of(callback: object) -> str:
    """What a callable is called: the same wherever and whenever its file is loaded."""
    while isinstance(callback, functools.partial):
        callback = callback.func
    name = getattr(callback, "__qualname__", None) or type(callback).__qualname__
    return str(name)[:NAME_CHARACTERS_MAX]


def call(callback: Callback, context: Mapping[str, Any]) -> None:
    """The callback was called, and where it is a coroutine, it has run."""
    returned = callback(context)
    if inspect.iscoroutine(returned):
        asyncio.run(returned)
