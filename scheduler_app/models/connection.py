"""Connections: where an outside system is, and what opens it."""

from __future__ import annotations

from django.db import models


class Connection(models.Model):
    """A named address with what opens it. ``sealed`` holds the password and the extras, encrypted.

    Which extras there are is in clear (``extra_keys``), what they say is not.
    """

    connection_id = models.CharField(max_length=250, primary_key=True)
    conn_type = models.CharField(max_length=250)
    host = models.TextField(default="", blank=True)
    login = models.TextField(default="", blank=True)
    schema = models.TextField(default="", blank=True)
    port = models.IntegerField(null=True)
    description = models.TextField(default="", blank=True)
    has_password = models.BooleanField(default=False)
    extra_keys = models.JSONField(default=list)
    sealed = models.TextField(default="", blank=True)  # empty: there is nothing to seal
    sealed_with = models.CharField(max_length=16, default="", blank=True)
    version = models.BigIntegerField(default=1)
    updated_at = models.DateTimeField()
    updated_by = models.CharField(max_length=250, default="", blank=True)

    class Meta:
        db_table = "connection"
