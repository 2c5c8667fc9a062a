"""Who takes letters in tests: web and mail servers on loopback that keep what they were sent."""

from __future__ import annotations

import contextlib
import socketserver
import ssl
import subprocess
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(slots=True)
class Taken:
    """One request that came in."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class WebServer:
    """Answers each POST with the next of ``answers``, and with 204 once there are none."""

    port: int = 0
    taken: list[Taken] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    pause_s: float = 0.0  # between the bytes of an answer
    address: str = "127.0.0.1"
    scheme: str = "http"

    def url(self, path: str = "/hook") -> str:
        """Where it is."""
        return f"{self.scheme}://{self.address}:{self.port}{path}"


@contextlib.contextmanager
def web_server(*, tls: Path | None = None, address: str = "127.0.0.1") -> Iterator[WebServer]:
    """A web server; with ``tls`` (a PEM file with key and certificate) it speaks https."""
    kept = WebServer(address=address, scheme="https" if tls else "http")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length", "0"))
            kept.taken.append(Taken(self.path, dict(self.headers.items()), self.rfile.read(size)))
            status, headers = kept.answers.pop(0) if kept.answers else (204, {})
            if kept.pause_s:
                with contextlib.suppress(OSError):
                    for byte in b"HTTP/1.1 200 OK\r\nX: " + b"y" * 10_000:
                        self.wfile.write(bytes([byte]))
                        time.sleep(kept.pause_s)
                return
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            """Silent."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *arguments: Any) -> None:
            """A client that breaks off is what some tests are about."""

    server = Server((address, 0), Handler)
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    kept.port = server.server_address[1]
    with _served(server):
        yield kept


@dataclass(slots=True)
class MailServer:
    """Takes mails; answers the first recipients with ``refusals``."""

    port: int = 0
    mails: list[tuple[list[str], str]] = field(default_factory=list)  # recipients, text
    refusals: list[str] = field(default_factory=list)


@contextlib.contextmanager
def mail_server() -> Iterator[MailServer]:
    """A server that speaks SMTP, without encryption or login."""
    kept = MailServer()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            recipients: list[str] = []
            self._say("220 here")
            while line := self.rfile.readline():
                verb = line.decode("utf-8", "replace").strip()
                match verb[:4].upper():
                    case "RCPT":
                        if kept.refusals:
                            self._say(kept.refusals.pop(0))
                            continue
                        recipients.append(verb.partition("<")[2].partition(">")[0])
                        self._say("250 ok")
                    case "DATA":
                        self._say("354 go on")
                        lines = []
                        while (text := self.rfile.readline()).strip() != b".":
                            lines.append(text.decode())
                        kept.mails.append((recipients, "".join(lines)))
                        self._say("250 taken")
                    case "QUIT":
                        self._say("221 bye")
                        return
                    case _:
                        self._say("250 ok")

        def _say(self, line: str) -> None:
            self.wfile.write(line.encode() + b"\r\n")

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    kept.port = server.server_address[1]
    with _served(server):
        yield kept


@contextlib.contextmanager
def _served(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.05), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)


def certificate(folder: Path, *, name: str = "localhost") -> Path:
    """A PEM file with a key and a certificate for this name that nobody signed."""
    made = folder / "server.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"),
            *("-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")),
        ],
        check=True,
        capture_output=True,
    )
    made.write_text((folder / "key.pem").read_text() + (folder / "certificate.pem").read_text())
    return made
