"""The only writers of state: each function is one move, by compare-and-set.

Comes in: a raw psycopg connection and values that a rule or a person decided on.
Goes out: what really moved; no row means that someone was first, which is never an error.
Who runs it: stations, processes and operations; pages and API never do.
What never happens here: decisions. What a crash leaves: nothing, since each move is one transaction
or part of its caller's.
Locks are taken in one order: lease, flow, pool, run, task instance (by id), attempt, trigger, event.
"""
