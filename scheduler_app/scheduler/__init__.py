"""The scheduler: holds leases on shards and decides for their flows.

Comes in: rows (flows, runs, task instances, events) and hints that some of them moved.
Goes out: runs, marks, issued attempts and their messages, verdicts, run ends.
Who runs it: ``manage.py scheduler``, any number of times on any host.
What never happens here: user code; a deciding transaction without its lease proof; waiting for a
broker inside a transaction.
On a crash: an uncommitted tick leaves nothing; a committed one leaves attempts without
``published_at``, which the next sweep of whoever holds the shard publishes again.
"""
