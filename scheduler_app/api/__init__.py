"""REST v1: the product for scripts, over the same queries and operations as the pages.

Comes in: HTTP with a Bearer token (or the session of the pages). Goes out: JSON, exports, and
problem+json for every refusal. Who runs it: ``manage.py web``. What never happens here: a row read
or written other than through ``queries`` and ``operations``; a decision; a state.
On a crash the client asks again: reads change nothing, and operations are refused or whole.

One file per noun holds its serializer and its views; ``reading.py`` is what all lists share.
"""
