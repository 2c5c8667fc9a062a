"""One module for each drill: a ``DRILL`` and the function that plays it."""
