"""Django's admin over the same lens: every model, for superusers, to look at and never to change.

Comes in: the models, by ``django.apps``, without importing them. Goes out: lists with the filtered
switch, counts and reasons, and every field of a row but secrets. Who runs it: ``manage.py web``.
What never happens here: a write. Acts are ``operations``; a form that saves rows would be a second
pen.
"""
