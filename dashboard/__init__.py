"""The pages: what people look at and click.

Comes in: requests. Goes out: HTML, whole or as a fragment of the same address; every page works
without scripts. Who runs it: the web process. What never happens here: a query of its own (reads are
``queries``), a write of its own (acts are ``operations``), a second way to say why a row is filtered.
On a crash nothing is lost: nothing is kept.

Read in this order: ``answer.py`` (from request to page), ``listing.py`` (every list), any view.
"""
