"""Addresses of pages, for those who are told of something outside the dashboard."""

from __future__ import annotations


def run_page(base: str, run_id: int) -> str:
    """The page of a run, by its number; empty without a base."""
    return f"{base}/runs/{run_id}/" if base else ""


def task_instance_page(base: str, ti_id: int) -> str:
    """The page of a task instance; empty without a base."""
    return f"{base}/task-instances/{ti_id}/" if base else ""


def incident_page(base: str, incident_id: int) -> str:
    """The page of an incident; empty without a base."""
    return f"{base}/incidents/{incident_id}/" if base else ""


def incidents_page(base: str) -> str:
    """The page of all incidents; empty without a base."""
    return f"{base}/incidents/" if base else ""
