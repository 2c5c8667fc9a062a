"""Executors: carry a dispatched attempt to a process that runs it.

Comes in: messages of attempts whose rows are committed. Goes out: deliveries, which may be lost,
doubled or late; the claim decides. Two of them: over Celery and its broker to workers anywhere, or
over sockets to workers of this machine. What never happens here: reads or writes of state.
"""
