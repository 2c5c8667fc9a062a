"""The command line: ``manage.py`` verbs over queries, operations and the catalog.

Comes in: arguments. Goes out: tables or JSON on standard output, one line on standard error for a
fault, an exit code. Who runs it: people and scripts on a host of the stack. What never happens here:
a write of its own; a command parses, calls and prints. A crash leaves nothing half done.
"""
