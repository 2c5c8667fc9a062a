"""Daylight: a workflow scheduler in which nothing that ran is hidden."""
