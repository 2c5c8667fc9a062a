"""The triggerer: fires what deferred task instances wait for.

Comes in: trigger rows that wait. Goes out: the same rows fired, and their task instances scheduled
with the event. Timers, time limits and external events are found by one query over what is due;
the others are claimed, a share for each triggerer, and their code runs in one asyncio loop.
Who runs it: ``manage.py triggerer``, any number of times. What never happens here: running tasks.
On a crash: what it watched is watched by another triggerer, from its beginning; what it fired is
fired, since the first fire wins and is one transaction.
"""
