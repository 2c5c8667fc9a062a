from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scheduler_app.authoring.letters import Letter
from scheduler_app.couriers import destinations, webhook
from scheduler_app.couriers.errors import NotReached, NotSendable, NotSent
from scheduler_app.couriers.limits import Limits
from scheduler_app.couriers.secrets import Secrets
from scheduler_app.couriers.send import send, send_patiently
from tests import receivers
from tests.integration.couriers.conftest import LOOPBACK

if TYPE_CHECKING:
    from tests.receivers import MailServer, WebServer

LETTER = Letter(
    key="k-1",
    event="on_failure",
    subject="load failed: r1",
    text="load failed.\nOSError: <no page> & more",
    url="https://daylight.example/runs/1/",
    facts={"flow_id": "load", "run_id": "r1"},
)
NONE = Secrets(lambda name: None)
KEY = "a-key-that-both-sides-share"


def _with(**secrets: str) -> Secrets:
    return Secrets(secrets.get)


def _webhook(url: Any, **more: Any) -> dict[str, Any]:
    return {"kind": "webhook", "url": url, **more}


def test_a_webhook_is_signed_so_that_its_receiver_can_check_it(web: WebServer) -> None:
    notifier = _webhook(web.url("/in?a=1"), key={"secret": "k"}, headers={"X-Team": "data"})
    said = send(notifier, LETTER, secrets=_with(k=KEY), limits=LOOPBACK)
    assert said.startswith("127.0.0.1 answered 204")
    (taken,) = web.taken
    assert taken.path == "/in?a=1"
    assert json.loads(taken.body) == {
        "key": "k-1",
        "event": "on_failure",
        "subject": LETTER.subject,
        "text": LETTER.text,
        "url": LETTER.url,
        "flow_id": "load",
        "run_id": "r1",
    }
    assert (taken.headers["X-Team"], taken.headers["Daylight-Key"]) == ("data", "k-1")
    timestamp = taken.headers["Daylight-Timestamp"]
    assert abs(time.time() - int(timestamp)) < 60
    wanted = hmac.new(KEY.encode(), timestamp.encode() + b"." + taken.body, hashlib.sha256)
    assert taken.headers["Daylight-Signature"] == f"v1={wanted.hexdigest()}"


def test_loopback_is_refused_unless_the_installation_allows_it(web: WebServer) -> None:
    with pytest.raises(NotSendable, match="DAYLIGHT_NOTIFIER_NETWORKS"):
        send(_webhook(web.url()), LETTER, secrets=NONE, limits=Limits())
    assert web.taken == []


def test_a_redirect_is_not_followed_wherever_it_leads(web: WebServer) -> None:
    with receivers.web_server() as other:
        web.answers = [(302, {"Location": other.url()}), (307, {"Location": other.url()})]
        for _ in range(2):
            with pytest.raises(NotSendable, match="a redirect, which is not followed"):
                send(_webhook(web.url()), LETTER, secrets=NONE, limits=LOOPBACK)
        assert other.taken == []


@pytest.mark.parametrize(
    ("status", "again"),
    [(500, True), (503, True), (429, True), (408, True), (400, False), (404, False)],
)
def test_an_answer_says_whether_to_try_again(web: WebServer, status: int, again: bool) -> None:
    web.answers = [(status, {})]
    with pytest.raises(NotSent) as caught:
        send(_webhook(web.url()), LETTER, secrets=NONE, limits=LOOPBACK)
    assert caught.value.may_try_again is again


def test_who_answers_a_byte_at_a_time_is_given_up_in_time(web: WebServer) -> None:
    web.pause_s = 0.02
    began = time.monotonic()
    limits = Limits(allowed=LOOPBACK.allowed, timeout_s=1.0)
    with pytest.raises(NotReached, match="did not answer in time"):
        send(_webhook(web.url()), LETTER, secrets=NONE, limits=limits)
    assert time.monotonic() - began < 30, "10,000 bytes would have taken 200 s"


def test_nobody_at_the_port_may_be_tried_again() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(NotReached, match="does not answer"):
        send(_webhook(f"http://127.0.0.1:{port}/"), LETTER, secrets=NONE, limits=LOOPBACK)


def test_https_checks_the_certificate_for_the_name_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem = receivers.certificate(tmp_path)
    with receivers.web_server(tls=pem) as web:
        url = f"https://localhost:{web.port}/hook"
        limits = Limits(allowed=(*LOOPBACK.allowed, ipaddress.ip_network("::1/128")), timeout_s=10)
        with pytest.raises(NotReached, match="localhost cannot be trusted"):
            send(_webhook(url), LETTER, secrets=NONE, limits=limits)
        monkeypatch.setenv("SSL_CERT_FILE", str(pem))
        assert "answered 204" in send(_webhook(url), LETTER, secrets=NONE, limits=limits)
        # Pinned to an address, and still under the name of the certificate.
        assert web.taken[0].headers["Host"] == f"localhost:{web.port}"
        with pytest.raises(NotReached, match=r"127\.0\.0\.1 cannot be trusted"):
            send(_webhook(web.url()), LETTER, secrets=NONE, limits=limits)


def test_a_letter_that_is_too_big_is_not_sent(web: WebServer) -> None:
    big = Letter(key="k", event="x", subject="s", text="y" * 300_000)
    with pytest.raises(NotSendable, match="262144 are the most"):
        send(_webhook(web.url()), big, secrets=NONE, limits=LOOPBACK)


def test_a_secret_address_is_in_no_message(web: WebServer) -> None:
    url = web.url("/services/T0000/B0000/deadbeefcafe?token=0123456789")
    web.answers = [(500, {}), (400, {})]
    for _ in range(2):
        with pytest.raises(NotSent) as caught:
            send(
                {"kind": "slack", "url": {"secret": "hook"}},
                LETTER,
                secrets=_with(hook=url),
                limits=LOOPBACK,
            )
        for word in ("deadbeefcafe", "0123456789", "T0000"):
            assert word not in str(caught.value)
    with pytest.raises(NotSendable, match="no secret 'other'"):
        send(
            {"kind": "slack", "url": {"secret": "other"}},
            LETTER,
            secrets=_with(hook=url),
            limits=LOOPBACK,
        )


def test_the_environment_of_the_sender_has_secrets_too(web: WebServer, settings: Any) -> None:
    settings.NOTIFIER_SECRETS = {"TEAM_HOOK": web.url("/from-environment")}
    send({"kind": "slack", "url": {"secret": "team.hook"}}, LETTER, secrets=NONE, limits=LOOPBACK)
    assert web.taken[0].path == "/from-environment"


def test_slack_gets_text_in_which_nothing_is_markup(web: WebServer) -> None:
    notifier = {"kind": "slack", "url": {"secret": "hook"}, "channel": "#data"}
    send(notifier, LETTER, secrets=_with(hook=web.url()), limits=LOOPBACK)
    said = json.loads(web.taken[0].body)
    assert said["channel"] == "#data"
    assert said["text"].splitlines() == [
        "*load failed: r1*",
        "load failed.",
        "OSError: &lt;no page&gt; &amp; more",
        f"<{LETTER.url}>",
    ]


@pytest.fixture
def smtp(settings: Any, mails: MailServer) -> MailServer:
    """The installation's mail server is the test's."""
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST = "127.0.0.1"
    settings.EMAIL_PORT = mails.port
    settings.DEFAULT_FROM_EMAIL = "daylight@example.com"
    return mails


def test_a_mail_arrives(smtp: MailServer) -> None:
    notifier = {"kind": "email", "to": ["ada@example.com", "bob@example.com"]}
    said = send(notifier, LETTER, secrets=NONE, limits=Limits())
    assert said == "The mail server took it for ada@example.com, bob@example.com."
    ((recipients, text),) = smtp.mails
    assert recipients == notifier["to"]
    assert "Subject: load failed: r1" in text
    assert "X-Daylight-Key: k-1" in text
    assert "OSError: <no page> & more" in text


@pytest.mark.parametrize(("answer", "again"), [("550 no such user", False), ("451 later", True)])
def test_a_recipient_that_is_refused_for_good_is_not_tried_again(
    smtp: MailServer, answer: str, again: bool
) -> None:
    smtp.refusals = [answer]
    with pytest.raises(NotSent) as caught:
        send({"kind": "email", "to": ["ada@example.com"]}, LETTER, secrets=NONE, limits=Limits())
    assert caught.value.may_try_again is again


def test_without_a_mail_server_the_message_says_how_to_name_one() -> None:
    with pytest.raises(NotSendable, match="DAYLIGHT_EMAIL_URL"):
        send({"kind": "email", "to": ["ada@example.com"]}, LETTER, secrets=NONE, limits=Limits())


def test_a_callback_tries_three_times_and_tells_of_each(web: WebServer) -> None:
    said: list[str] = []
    waited: list[float] = []
    web.answers = [(503, {}), (503, {})]
    send_patiently(
        _webhook(web.url()),
        LETTER,
        secrets=NONE,
        limits=LOOPBACK,
        say=said.append,
        wait=waited.append,
    )
    assert waited == [1.0, 4.0]
    assert [line.partition(":")[0] for line in said[:2]] == ["Try 1 of 3", "Try 2 of 3"]
    assert "answered 204" in said[2]
    # Its receiver knows the three for one by their key.
    assert {taken.headers["Daylight-Key"] for taken in web.taken} == {"k-1"}
    web.answers = [(503, {})] * 9
    web.taken.clear()
    with pytest.raises(NotReached):
        send_patiently(
            _webhook(web.url()),
            LETTER,
            secrets=NONE,
            limits=LOOPBACK,
            say=said.append,
            wait=waited.append,
        )
    assert len(web.taken) == 3


def test_a_library_s_own_connections_are_looked_at_in_its_thread_alone(web: WebServer) -> None:
    def reach() -> None:
        socket.create_connection(("127.0.0.1", web.port), timeout=10).close()

    with destinations.guarded(()) as refused:
        with pytest.raises(PermissionError, match=r"127\.0\.0\.1"):
            reach()
        assert len(refused) == 1
        other = threading.Thread(target=reach)
        other.start()
        other.join(timeout=10)
    reach()
    with destinations.guarded(LOOPBACK.allowed):
        reach()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the library's own imports
def test_apprise_posts_where_it_may(web: WebServer) -> None:
    pytest.importorskip("apprise", reason="an extra that this environment does not have")
    notifier = {"kind": "apprise", "url": {"secret": "u"}}
    url = f"json://127.0.0.1:{web.port}/in"
    said = send(notifier, LETTER, secrets=_with(u=url), limits=LOOPBACK)
    assert said.endswith("took it.")
    assert json.loads(web.taken[0].body)["title"] == LETTER.subject
    with pytest.raises(NotSendable, match=r"127\.0\.0\.1 is an address of this network"):
        send(notifier, LETTER, secrets=_with(u=url), limits=Limits())
    with receivers.web_server(address="127.0.0.2") as other:
        narrow = Limits(allowed=(ipaddress.ip_network("127.0.0.1/32"),))
        web.answers = [(302, {"Location": other.url()})]
        with pytest.raises(NotSent):
            send(notifier, LETTER, secrets=_with(u=url), limits=narrow)
        assert other.taken == []
    with pytest.raises(NotSendable, match="does not understand"):
        send(notifier, LETTER, secrets=_with(u="nonsense"), limits=LOOPBACK)


def test_the_signature_is_the_one_of_the_documents() -> None:
    made = webhook.signature(b'{"a": 1}', timestamp=1_700_000_000, key="s3cret")
    assert made == "v1=" + hmac.new(b"s3cret", b'1700000000.{"a": 1}', hashlib.sha256).hexdigest()
