"""Daylight: a workflow scheduler in which nothing that ran is hidden."""

from __future__ import annotations

__version__ = "0.1.0.dev0"
