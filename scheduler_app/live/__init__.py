"""The live feed: tells open pages that what they show has changed, never what it changed to.

Comes in: topics as hints, one listener a process. Goes out: ``{"t": topic, "rev": n}``
over websockets; the page asks again with a normal request. Who runs it: ``manage.py web``.
What never happens here: content, a state, a write; a signal that somebody may not see.
On a crash or without hints nothing is lost: the socket says so, and pages ask on their own.

A revision is the database's clock in microseconds. A page knows the one it was read at, so a page
whose topic has a newer one asks again, and what was missed while the listener was away counts as
changed.
"""
