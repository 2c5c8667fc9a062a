"""Template tags: how a state, a time, a link or a count is written, once for every page."""
