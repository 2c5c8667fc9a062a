"""Hints between processes: something moved, look now. Losing one delays work and loses none.

Comes in: what a process says after its commit (``notices``). Goes out: the same, to whoever listens
on that channel (``listening``). Two carriers do the same: Valkey pub/sub where ``CACHE_URL`` names
one, and otherwise PostgreSQL's LISTEN and NOTIFY.
What never happens here: a decision, a row, a hint inside a transaction that decides.
On a crash, or without the carrier, nothing is lost: everybody who listens also looks by himself,
less often.
"""
