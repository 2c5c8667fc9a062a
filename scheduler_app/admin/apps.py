"""Puts the read-only site in the place of Django's own, and every model on it."""

from __future__ import annotations

from typing import Final

from django.contrib.admin.apps import SimpleAdminConfig

# Rows of these would open somebody's session, or say nothing.
LEFT_OUT: Final = frozenset({"sessions", "contenttypes"})


class ReadOnlyAdminConfig(SimpleAdminConfig):
    """Django's admin, with the site of this product.

    Nothing is registered before somebody asks for its addresses: most processes serve no pages, and
    start a fifth sooner without.
    """

    default_site = "scheduler_app.admin.site.ReadOnlySite"
