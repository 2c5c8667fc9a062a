"""What a person may ask for: each verb one function, used alike by pages, API and command line.

Comes in: ids, the actor, the reason. Goes out: rows written by ``transitions/`` in one transaction,
with an audit entry, and hints after the commit. What never happens here: reading for a page.
"""
