"""Fire drills: real faults on a throw-away stack, and what must hold afterwards.

Comes in: the name of a drill. Goes out: a report in which every line says what was expected and what
was seen. A drill starts a whole stack of its own (``stack``), puts load on it (``load``), does one
kind of damage to its processes (a module of ``faults``), lets it heal, and compares three witnesses
(``checker``): what the tasks themselves wrote down outside the product (``ledger``), what the API
shows, and a bank that takes a write only with a fence greater than the last one's. What never
happens here: reading the product's code or tables to find out whether it did well; a drill sees a
stack as an operator does.

A new drill is one module in ``faults`` with a ``DRILL``; the command finds it.
"""
