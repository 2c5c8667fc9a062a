"""Reads: every list, page, export and count of the product comes from here.

Comes in: a filter (what the address asked for) and a scope (what the reader may see).
Goes out: frozen rows with their standing, and the counts that belong to them.
Who runs it: the doors (``api``, ``dashboard``, ``live``, ``admin``) and the commands.
What never happens here: a write, a decision, a second way to count.
On a crash nothing is lost: nothing is kept.

Read in this order: ``scope.py``, ``filters.py``, ``paging.py``, ``lens.py``, then any noun.
"""
