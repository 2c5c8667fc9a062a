"""Writing flows: the public names.

Comes in: a file of a flow folder that imports these names. Goes out: ``Flow`` objects whose
``definition()`` the catalog stores and whose ``calls`` the worker executes. Runs in the catalog's
loading processes, in worker children and in the author's own shell or tests; needs no database and
no Django. What never happens here: reading rows, knowing the time, deciding what runs when.
"""

from __future__ import annotations

from scheduler_app.authoring.context import Context
from scheduler_app.authoring.flow import Flow, flow
from scheduler_app.authoring.task import Task, task

__all__ = ["Context", "Flow", "Task", "flow", "task"]
