"""What the processes of a stack load, loaded once for all of them: in the nursery.

Modules are named and not imported: some belong to floors above this one, and none is used here.
Each role is content without this; it would load by itself what is missing here.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import threading
from typing import Final

# Libraries that need no settings, so that they can be loaded while the servers start.
_LIBRARIES: Final = (
    "asyncio",
    "encodings.cp437",  # of archives
    "encodings.idna",  # of addresses
    "concurrent.futures.thread",
    "psycopg",
    "psycopg_pool",
    "django.db.models",
    "django.template.backends.django",
    "django.template.context_processors",
    "django.template.loaders.cached",
    "django.template.loaders.filesystem",
    "django.template.loaders.app_directories",
    "django.contrib.admin.options",
    "redis",
    "redis.asyncio",
    "jinja2",
    "jsonschema",
    "channels.routing",
    "uvicorn",
    "uvicorn.loops.asyncio",
    "uvicorn.protocols.http.httptools_impl",
    "uvicorn.protocols.websockets.auto",
)
_OF_CELERY: Final = (
    "celery.app.amqp",
    "celery.app.base",
    "celery.app.routes",
    "celery.loaders.app",
    "celery.concurrency.base",
    "celery.worker.consumer",
    "kombu.transport.redis",
)
# Of the product: the commands, and what they load once they run.
_ROLES: Final = tuple(
    f"scheduler_app.management.commands.{role}"
    for role in ("scheduler", "triggerer", "worker", "web")
)
_LATE: Final = (
    "django.contrib.auth.context_processors",
    "django.contrib.messages.context_processors",
    "template_partials.loader",
    "scheduler_app.launch.errands",
    "scheduler_app.launch.first_look",
    "scheduler_app.launch.prepare",
    "scheduler_app.launch.readiness",
    "scheduler_app.config.asgi",
    "scheduler_app.config.celery",
    "scheduler_app.config.urls",
    "scheduler_app.worker.tasks",
)


def libraries() -> None:
    """Libraries are loaded; no settings were read."""
    for name in (*_LIBRARIES, *_OF_CELERY):
        importlib.import_module(name)


def product() -> None:
    """Everything is loaded, and what is made at its first use has been made. No thread is left."""
    import django  # noqa: PLC0415 - it reads the settings

    django.setup()
    for name in (*_ROLES, *_LATE):
        importlib.import_module(name)
    _use()


def _use() -> None:
    """What a first use makes is there: what the checks find out, the database's driver, a thread's stack."""
    from django.core.management import call_command  # noqa: PLC0415 - the settings are read by now
    from django.core.management.base import SystemCheckError  # noqa: PLC0415 - likewise
    from psycopg import Error  # noqa: PLC0415 - likewise

    from scheduler_app.processes import database  # noqa: PLC0415 - likewise

    thread = threading.Thread(target=threading.get_ident)
    thread.start()
    thread.join()
    # What is wrong is told by whoever needs it to be right.
    with contextlib.suppress(SystemCheckError):
        call_command("check", tags=["daylight"], stdout=io.StringIO(), stderr=io.StringIO())
    with contextlib.suppress(Error), database.connect("lease", name="nursery") as connection:
        connection.execute("SELECT 1")
