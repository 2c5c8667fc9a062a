"""The worker: claims attempts, runs user code, reports; and witnesses its own children.

Comes in: deliveries from the carrier, each naming an attempt whose row is committed.
Goes out: claims, results, logs, heartbeats, and one exit event per execution.
Who runs it: ``manage.py worker``. Its *main* process (``service``, ``witness``, ``beats``, ``logs``)
never runs user code: it consumes, watches the children, beats for them and stops them. A *child* of
its pool (``execute``, ``report``, ``capture``, ``guard``) takes one delivery from claim to finish.
What never happens here: a decision to retry a lost attempt; user code before a claim; a second run
of user code because a report could not be delivered.
On a crash: of a child, the main process says so within 2 s; of the whole worker, its heartbeats
stop and the scheduler decides; what it left on disk (reports, logs) is sent by the next worker on
its host.
"""
