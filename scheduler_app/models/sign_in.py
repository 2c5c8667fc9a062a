"""Sign-ins: wrong passwords of the last minutes, and who has signed in from where lately."""

from __future__ import annotations

from django.db import models
from django.db.models import Q


class SignIn(models.Model):
    """A failure, or the newest success of a name from an address. Gone once it says nothing any more."""

    # SHA-256 of the casefolded name, of which no account needs to exist: it may have been a password.
    name_digest = models.CharField(max_length=64)
    address = models.CharField(max_length=50)  # an IPv4 address or an IPv6 network
    is_success = models.BooleanField()
    at = models.DateTimeField()

    class Meta:
        db_table = "sign_in"
        constraints = [
            models.UniqueConstraint(
                fields=["name_digest", "address"],
                condition=Q(is_success=True),
                name="sign_in_known",
            )
        ]
        indexes = [
            models.Index(
                fields=["name_digest", "at"],
                condition=Q(is_success=False),
                name="sign_in_failed_name",
            ),
            models.Index(
                fields=["address", "at"],
                condition=Q(is_success=False),
                name="sign_in_failed_address",
            ),
            models.Index(fields=["at"], name="sign_in_at"),
        ]
