"""Tokens of the API: what a Bearer header is compared with."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class ApiToken(models.Model):
    """A right to act as a user for a while. The token itself is stored nowhere."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens"
    )
    digest = models.CharField(max_length=64, unique=True)  # sha256 of the token, in hexadecimal
    # The user's session hash when it was issued: a new password ends every token.
    stamp = models.CharField(max_length=128)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()

    class Meta:
        db_table = "api_token"
