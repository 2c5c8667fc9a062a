"""What every long-running process shares: its connection, its job row, its loop, its bundles.

Comes in: settings. Goes out: a beating job row and a loop that stops when asked.
Who runs it: scheduler, triggerer, worker, web. What never happens here: decisions about tasks.
What a crash leaves: a job row whose heartbeat stops; others see that by the database's clock.
"""
