"""The triggerer: watches what deferred task instances wait for.

Comes in: waiting trigger rows (none can be made yet). Goes out: its job row, with the progress of
its loop. On a crash: nothing is lost; the rows wait for another triggerer.
"""
