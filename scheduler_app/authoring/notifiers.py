"""Notifiers: values that tell somebody outside, as callbacks of tasks and flows and for alerts.

They only say what is told to whom. What sends it is lent to them where they are called: the worker's
couriers; so a flow file needs no network, no mail server and no secret to be loaded.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import urlsplit

from scheduler_app.authoring.letters import Letter, fault_of_template, letter_of
from scheduler_app.authoring.secret import KEY, Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

RECIPIENTS_MAX: Final = 50
HEADERS_MAX: Final = 20
ADDRESS_CHARACTERS_MAX: Final = 2000


_courier: ContextVar[Callable[[Mapping[str, Any], Letter], None] | None] = ContextVar(
    "daylight_courier", default=None
)


@contextlib.contextmanager
def sent_by(courier: Callable[[Mapping[str, Any], Letter], None]) -> Iterator[None]:
    """Within the block, what notifiers are told to send goes out by ``courier``."""
    token = _courier.set(courier)
    try:
        yield
    finally:
        _courier.reset(token)


class Notifier:
    """What tells somebody: ``on_failure_callback=WebhookNotifier(...)``, ``alerts=[...]``.

    A notifier of one's own derives from this and overrides ``notify``; it can be a callback, but
    not an alert, which is sent by processes that run no code of flow files.
    """

    kind: ClassVar[str] = ""  # of those that alerts can use

    def __init__(self, *, subject: str | None = None, text: str | None = None) -> None:
        for name, template in (("subject", subject), ("text", text)):
            if template is not None and (fault := fault_of_template(template)):
                raise ValueError(f"{type(self).__name__}({name}=...): {fault}.")
        self.subject = subject
        self.text = text

    def __call__(self, context: Mapping[str, Any]) -> None:
        """Somebody was told. Raises what sending it came to."""
        self.notify(context)

    def notify(self, context: Mapping[str, Any]) -> None:
        """The letter of this context was sent."""
        courier = _courier.get()
        letter = letter_of(context, subject=self.subject, text=self.text)
        if courier is None:  # in a test or a shell of the author's
            print(f"{type(self).__name__} would tell: {letter.subject}")  # noqa: T201 - its answer
            return
        courier(self.described(), letter)

    def described(self) -> dict[str, Any]:
        """The notifier as JSON values, secrets by name."""
        raise NotImplementedError

    def _described(self, **own: Any) -> dict[str, Any]:
        said = {"kind": self.kind, **own, "subject": self.subject, "text": self.text}
        return {key: value for key, value in said.items() if value is not None}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {shown(self.described())}>"


class WebhookNotifier(Notifier):
    """POSTs the letter as JSON, signed where ``key`` names the secret that both sides share.

    Only to public addresses, over https, without following redirects; what else an installation
    allows is in its settings (docs/alerts.md).
    """

    kind = "webhook"

    def __init__(
        self,
        url: str | Secret,
        *,
        key: Secret | None = None,
        headers: Mapping[str, str | Secret] | None = None,
        subject: str | None = None,
        text: str | None = None,
    ) -> None:
        super().__init__(subject=subject, text=text)
        self.url = _url(url)
        self.key = _secret("key", key) if key is not None else None
        self.headers = _headers(headers or {})

    def described(self) -> dict[str, Any]:
        """The notifier as JSON values, secrets by name."""
        return self._described(
            url=_plain(self.url),
            key=None if self.key is None else _plain(self.key),
            headers={name: _plain(value) for name, value in self.headers.items()} or None,
        )


class EmailNotifier(Notifier):
    """Sends a mail through the installation's mail server."""

    kind = "email"

    def __init__(
        self, to: str | Sequence[str], *, subject: str | None = None, text: str | None = None
    ) -> None:
        super().__init__(subject=subject, text=text)
        self.to = _recipients(to)

    def described(self) -> dict[str, Any]:
        """The notifier as JSON values."""
        return self._described(to=list(self.to))


class SlackNotifier(Notifier):
    """Posts to an incoming webhook of Slack, or of what understands the same (Mattermost, ...).

    Its address is what lets anybody post, so it is a secret.
    """

    kind = "slack"

    def __init__(
        self,
        url: Secret,
        *,
        channel: str | None = None,
        subject: str | None = None,
        text: str | None = None,
    ) -> None:
        super().__init__(subject=subject, text=text)
        self.url = _secret("url", url)
        self.channel = channel

    def described(self) -> dict[str, Any]:
        """The notifier as JSON values, secrets by name."""
        return self._described(url=_plain(self.url), channel=self.channel)


class AppriseNotifier(Notifier):
    """Sends by the library Apprise, where it is installed; its URL names service and credentials."""

    kind = "apprise"

    def __init__(self, url: Secret, *, subject: str | None = None, text: str | None = None) -> None:
        super().__init__(subject=subject, text=text)
        self.url = _secret("url", url)

    def described(self) -> dict[str, Any]:
        """The notifier as JSON values, secrets by name."""
        return self._described(url=_plain(self.url))


KINDS: Final[Mapping[str, type[Notifier]]] = {
    each.kind: each for each in (WebhookNotifier, EmailNotifier, SlackNotifier, AppriseNotifier)
}


def from_description(said: object) -> Notifier:
    """The notifier that ``described`` told of. Raises ``ValueError`` with what is wrong."""
    if not isinstance(said, Mapping) or said.get("kind") not in KINDS:
        raise ValueError(f"a notifier is an object whose kind is one of {', '.join(KINDS)}")
    options = {name: _from_plain(value) for name, value in said.items() if name != "kind"}
    made = KINDS[said["kind"]]
    try:
        return made(**options)
    except TypeError as error:
        raise ValueError(f"{said['kind']}: {error}") from None


def key_of(described: Mapping[str, Any]) -> str:
    """The same for the same notifier, wherever it is named."""
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def shown(described: Mapping[str, Any]) -> str:
    """The notifier in a few words for people, without what opens anything."""
    match described.get("kind"):
        case "email":
            return f"e-mail to {', '.join(described.get('to', ()))}"
        case kind:
            url = described.get("url", "")
            if isinstance(url, Mapping):
                return f"{kind} at secret {url.get(KEY)}"
            parts = urlsplit(str(url))
            return f"{kind} at {parts.scheme}://{parts.netloc}"


def _plain(value: str | Secret) -> Any:
    return value.described() if isinstance(value, Secret) else value


def _from_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        if set(value) == {KEY}:
            return Secret(value[KEY])
        return {name: _from_plain(one) for name, one in value.items()}
    return value


def _secret(option: str, value: object) -> Secret:
    if not isinstance(value, Secret):
        raise ValueError(
            f'{option}=...: give Secret("its name"); the value itself would stand in the flow file,'
            " in its stored version and on its page."
        )
    return value


def _url(value: object) -> str | Secret:
    if isinstance(value, Secret):
        return value
    if not isinstance(value, str) or len(value) > ADDRESS_CHARACTERS_MAX:
        raise ValueError(
            "url: give an address such as https://hooks.example.com/x, or Secret(...)."
        )
    parts = urlsplit(value)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise ValueError(f"url={value[:80]!r}: give an address that begins with https://.")
    if "@" in parts.netloc:
        raise ValueError(
            "url: leave user and password out; sign with key=Secret(...), or make the"
            " whole address a Secret(...)."
        )
    return value


def _headers(value: Mapping[str, object]) -> dict[str, str | Secret]:
    if not isinstance(value, Mapping) or len(value) > HEADERS_MAX:
        raise ValueError(f"headers: give a dict of at most {HEADERS_MAX} headers.")
    for name, one in value.items():
        if not re.fullmatch(r"[A-Za-z0-9-]{1,100}", name):
            raise ValueError(f"headers: {name!r} is no name of a header.")
        if name.lower() in {"host", "content-length", "content-type", "transfer-encoding"}:
            raise ValueError(f"headers: {name!r} is set by itself.")
        if not isinstance(one, (str, Secret)):
            raise ValueError(f"headers: {name} must be a text or Secret(...).")
        if isinstance(one, str) and not one.isprintable():
            raise ValueError(f"headers: {name} must be one printable line.")
    return dict(value)  # type: ignore[arg-type] # checked above


def _recipients(value: object) -> tuple[str, ...]:
    given = (
        (value,)
        if isinstance(value, str)
        else tuple(value)
        if isinstance(value, (list, tuple))
        else ()
    )
    if not 0 < len(given) <= RECIPIENTS_MAX or not all(
        isinstance(one, str) and re.fullmatch(r"[^@\s<>,;]{1,64}@[^@\s<>,;]{1,255}", one)
        for one in given
    ):
        raise ValueError(f"to: give an address such as ops@example.com, or 1 to {RECIPIENTS_MAX}.")
    return given
