"""A letter on its way: by the notifier's kind, once or as often as a callback has time for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from scheduler_app.couriers import apprise, mail, slack, webhook
from scheduler_app.couriers.errors import NotSendable, NotSent
from scheduler_app.couriers.limits import PAUSES_S, TRIES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler_app.authoring.letters import Letter
    from scheduler_app.couriers.limits import Limits
    from scheduler_app.couriers.secrets import Secrets


def send(notifier: Mapping[str, Any], letter: Letter, *, secrets: Secrets, limits: Limits) -> str:
    """It was sent; a sentence that says how. Raises ``NotSent``, whose text has no secrets."""
    try:
        return secrets.hidden(_sent(notifier, letter, secrets, limits))
    except NotSent as error:
        raise type(error)(secrets.hidden(str(error))) from None


def send_patiently(
    notifier: Mapping[str, Any],
    letter: Letter,
    *,
    secrets: Secrets,
    limits: Limits,
    say: Callable[[str], object],
    wait: Callable[[float], object] = time.sleep,
) -> None:
    """It was sent, at the latest with the last try; each try is told. Raises ``NotSent``."""
    for number in range(1, TRIES_MAX + 1):
        try:
            say(send(notifier, letter, secrets=secrets, limits=limits))
        except NotSent as error:
            if not error.may_try_again or number == TRIES_MAX:
                raise
            pause_s = PAUSES_S[number - 1]
            say(f"Try {number} of {TRIES_MAX}: {error} Again in {pause_s:g} s.")
            wait(pause_s)
        else:
            return


def _sent(notifier: Mapping[str, Any], letter: Letter, secrets: Secrets, limits: Limits) -> str:
    match notifier["kind"]:
        case "webhook":
            key = notifier.get("key")
            return webhook.post(
                secrets.text(notifier["url"]),
                letter.body(),
                limits=limits,
                headers=secrets.texts(notifier.get("headers") or {}),
                letter_key=letter.key,
                key=None if key is None else secrets.text(key),
            )
        case "slack":
            return webhook.post(
                secrets.text(notifier["url"]),
                slack.content(letter, channel=notifier.get("channel")),
                limits=limits,
            )
        case "email":
            return mail.send(notifier["to"], letter)
        case "apprise":
            return apprise.send(secrets.text(notifier["url"]), letter, limits=limits)
        case kind:
            raise NotSendable(f"There is no notifier of kind {kind!r}.")
