"""Start-up on one machine: the environment, the embedded servers, the supervisor.

Comes in: a checkout and the arguments of ``manage.py up`` or ``manage.py test``. Goes out: a
running stack whose processes are children of one supervisor.
What never happens here: scheduling; a change outside the checkout and the data folder.
On a crash of the supervisor its children are told by the kernel and end; the next start finds a
PostgreSQL that recovers by itself.
"""
