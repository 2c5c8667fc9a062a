"""Example flows on real data: they import ``authoring`` and nothing else of Daylight.

Comes in: ``data/penguins.csv``. Goes out: files below ``examples-output`` in the data folder.
Who runs it: workers, as any author's flows. This folder is a flow folder like any other, which
``manage.py up --no-examples`` leaves out.
"""
