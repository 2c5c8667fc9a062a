"""One mail, through Django's backend and the installation's mail server."""

from __future__ import annotations

import smtplib
from typing import TYPE_CHECKING, Final

from django.conf import settings
from django.core import mail

from scheduler_app.couriers.errors import NotReached, NotSendable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler_app.authoring.letters import Letter

_FOR_GOOD: Final = 500  # SMTP codes from here on say that trying again is no use


def send(to: Sequence[str], letter: Letter) -> str:
    """The mail server took it; a sentence that says so. Raises ``NotSendable`` and ``NotReached``."""
    if not settings.EMAIL_HOST:
        raise NotSendable(
            "No mail server is named: set DAYLIGHT_EMAIL_URL, such as"
            " smtp://user:password@mail.example.com:587?tls=1."
        )
    message = mail.EmailMessage(
        subject=letter.subject,
        body=letter.text,
        from_email=settings.DEFAULT_FROM_EMAIL,
        to=list(to),
        # Receivers know doubles by it; clients keep what is about the same thing together.
        headers={"X-Daylight-Key": letter.key, "Auto-Submitted": "auto-generated"},
        connection=mail.get_connection(fail_silently=False),
    )
    try:
        message.send()
    except mail.BadHeaderError as error:
        raise NotSendable("The subject or an address has a line break.") from error
    except smtplib.SMTPRecipientsRefused as error:
        codes = {code for code, _ in error.recipients.values()}
        refused = f"The mail server refused {', '.join(error.recipients)}"
        if all(code >= _FOR_GOOD for code in codes):
            raise NotSendable(f"{refused}.") from error
        raise NotReached(f"{refused} for now.") from error
    except smtplib.SMTPResponseException as error:
        said = f"The mail server answered {error.smtp_code}"
        if error.smtp_code >= _FOR_GOOD:
            raise NotSendable(f"{said}.") from error
        raise NotReached(f"{said}.") from error
    except (OSError, smtplib.SMTPException) as error:
        raise NotReached(f"The mail server was not reached: {type(error).__name__}.") from error
    return f"The mail server took it for {', '.join(to)}."
