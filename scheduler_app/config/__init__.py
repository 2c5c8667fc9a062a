"""Wiring: settings, addresses, the Celery application, log lines.

Comes in: the environment. Goes out: ``django.conf.settings``, the ASGI and Celery applications.
Who runs it: every process, at its start. What never happens here: reading or writing rows.
A value that makes no sense stops the process at once with the variable's name.
"""
