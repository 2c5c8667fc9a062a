"""A cluster for tests: each part of the product on a host of its own, and servers on two more.

PostgreSQL and the broker are external servers to it, started here as somebody who runs them would:
listening on their host's address, with passwords. Every process of the product is one command with
an environment, as ``docs/clusters.md`` tells it; the drills' checker looks at what came of it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import sys
import urllib.request
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, quote, urlsplit

import psycopg
from psycopg.rows import dict_row

from scheduler_app.drills import ledger
from scheduler_app.drills.stack import LOAD, PASSWORD, DrillFailed, Stack
from scheduler_app.drills.stage import Drill
from scheduler_app.launch import accounts, children, embedded
from scheduler_app.launch.environment import ROOT
from tests import auditing, readymade
from tests.ground import TTL_S, Ground
from tests.hosts import Network

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tests.hosts import Host

DATABASE_PORT: Final = 5432
BROKER_PORT: Final = 6379
_NO_SOURCE: Final = shutil.ignore_patterns("__pycache__")
WEB_PORT: Final = 8000
START_WITHIN_S: Final = 150.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One process of the product, and the host that it runs on."""

    host: str
    command: tuple[str, ...]

    @property
    def kind(self) -> str:
        """Which process it is."""
        return self.command[0]


PARTS: Final = (
    Part(host="scheduler-1", command=("scheduler",)),
    Part(host="scheduler-2", command=("scheduler",)),
    Part(host="worker-1", command=("worker", "--queues", "default", "--concurrency", "3")),
    Part(host="worker-2", command=("worker", "--queues", "apart", "--concurrency", "2")),
    Part(host="triggerer-1", command=("triggerer",)),
    Part(host="triggerer-2", command=("triggerer",)),
    Part(host="web", command=("web", "--host", "0.0.0.0", "--port", str(WEB_PORT))),
)


class Cluster(Stack):
    """The hosts and their processes, as a drill sees a stack."""

    def __init__(self, network: Network, *, environment: Mapping[str, str]) -> None:
        super().__init__(flags=(), environment=environment)
        self.network = network
        self.port = WEB_PORT
        self.database_url = ""  # for the test itself: around every cable
        self._secret = secrets.token_urlsafe(50)
        self._database_password = ""
        self._broker_password = secrets.token_hex(16)
        self._servers: list[Callable[[], None]] = []
        for name in ("database", "broker", *(part.host for part in PARTS)):
            network.add(name)

    def host(self, name: str) -> Host:
        """The host of this name."""
        return self.network.hosts[name]

    # -- life -----------------------------------------------------------------------------------

    def start(self, points: Sequence[str] = ()) -> None:
        """Servers answer, the schema is there, every part gets on."""
        self.once.mkdir()
        for point in points:
            (self.once / point).touch()
        ledger.open_bank(self.folder)
        self.data_dir.mkdir()
        for part in PARTS:
            self.disk(part.host).mkdir()
            if part.kind == "scheduler":
                shutil.copytree(LOAD, self.disk(part.host) / "flows", ignore=_NO_SOURCE)
        self._start_database()
        self._start_broker()
        for command in (
            ("migrate", "--verbosity", "0"),
            ("createsuperuser", "--noinput", "--username", "admin", "--email", "admin@localhost"),
        ):
            done = self.manage(*command, within_s=120)
            assert done.returncode == 0, done.stdout + done.stderr
        for part in PARTS:
            self.start_part(part)
        self.wait_for("every part gets on", self._is_ready, within_s=START_WITHIN_S)

    def start_part(self, part: Part, **environment: str) -> int:
        """The part runs on its host; its pid."""
        with (self.folder / f"{part.host}.log").open("ab") as log:
            process = children.spawn(
                self.host(part.host).command(
                    *(sys.executable, str(ROOT / "manage.py"), *part.command),
                    disk=(self.disk(part.host), self.data_dir),
                ),
                log=log,
                environ={**self.environment_of(part.host), **environment},
                cwd=ROOT,
            )
        self._others.append(process)
        self._pids.setdefault(part.host, []).append(process.pid)
        return process.pid

    def end(self, *, keep: bool) -> None:
        """Every process has ended, the servers last."""
        self.network.heal()
        super().end(keep=True)
        for stop in reversed(self._servers):
            stop()
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def manage(self, *arguments: str, within_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        """A command of the product, on the database's host, whose cable nobody pulls."""
        with self.host("database").entered():
            before, self._environment = self._environment, self.environment_of("database")
            try:
                return super().manage(*arguments, within_s=within_s)
            finally:
                self._environment = before

    def environment_of(self, host: str) -> dict[str, str]:
        """What each process on this host is told: only schedulers have a flow folder."""
        database, broker = self.host("database").address, self.host("broker").address
        cache = f"redis://:{self._broker_password}@{broker}:{BROKER_PORT}"
        return {
            **self._environment,
            "DATABASE_URL": (
                f"postgresql://{embedded.USER}:{quote(self._database_password)}@{database}"
                f":{DATABASE_PORT}/{embedded.DATABASE}"
            ),
            "BROKER_URL": f"{cache}/0",
            "CACHE_URL": f"{cache}/1",
            "DAYLIGHT_SECRET_KEY": self._secret,
            "DAYLIGHT_FLOWS": str(self.data_dir / "flows") if "scheduler" in host else "",
            "DAYLIGHT_ALLOWED_HOSTS": self.host("web").address,
            "DJANGO_SUPERUSER_PASSWORD": PASSWORD,
        }

    def disk(self, host: str) -> Path:
        """What the host has as its data folder, with a copy of the flow folder in it."""
        return self.folder / f"disk-{host}"

    def _start_database(self) -> None:
        folder = self.folder / "database"
        readymade.fill(folder)
        made = embedded.start_postgres(folder, throw_away=True)  # on loopback, for its arguments
        made.stop()
        assert made.folder is not None
        with (made.folder / "pg_hba.conf").open("a", encoding="utf-8") as rules:
            rules.write("host all all samenet scram-sha-256\n")
        sockets = self.folder / "s"
        sockets.mkdir()
        account = accounts.place_for(folder).account
        if account is not None:
            os.chown(sockets, account.uid, account.gid)
        settings = {
            "listen_addresses": "*",
            "port": str(DATABASE_PORT),
            "unix_socket_directories": str(sockets),
        }
        arguments = [*made.process.args]  # type: ignore[misc] # a list, as it was given
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        with (self.folder / "database.log").open("ab") as log, self.host("database").entered():
            process = children.spawn(
                [*arguments, *options],  # a later option wins
                log=log,
                environ={"PATH": os.defpath, "LC_ALL": "C"},
                cwd=self.folder,
                account=account,
                on_parent_death=signal.SIGINT,
            )
        self._servers.append(lambda: _stop(process, signal.SIGINT))
        parts = urlsplit(made.url)
        self._database_password = parts.password or ""
        port = parse_qs(parts.query)["port"][0]
        self.database_url = made.url.replace(parts.query, f"host={sockets}&port={DATABASE_PORT}")
        assert port != str(DATABASE_PORT), "the first start had a port of its own"
        self.wait_for("the database answers", self._database_answers, within_s=60)

    def _database_answers(self) -> bool:
        try:
            psycopg.connect(self.database_url).close()
        except psycopg.OperationalError:
            return False
        return True

    def _start_broker(self) -> None:
        folder = self.folder / "broker"
        made = embedded.start_valkey(folder)
        made.stop()
        binary = made.process.args[0]  # type: ignore[index] # a list, as it was given
        command = [str(binary), "--bind", "0.0.0.0", "--port", str(BROKER_PORT)]
        command += ["--requirepass", self._broker_password, "--save", "", "--appendonly", "no"]
        with (self.folder / "broker.log").open("ab") as log, self.host("broker").entered():
            process = children.spawn(
                command,
                log=log,
                environ={"PATH": os.defpath, "LC_ALL": "C"},
                cwd=self.folder,
                account=accounts.place_for(folder).account,
                on_parent_death=signal.SIGTERM,
            )
        self._servers.append(lambda: _stop(process, signal.SIGTERM))

    def _is_ready(self) -> bool:
        for process in self._others:
            if process.poll() is not None:
                logs = [f.read_text(errors="replace")[-800:] for f in self.folder.glob("*.log")]
                raise DrillFailed("a part ended:\n" + "\n".join(logs))
        if self.at_work() != {part.host for part in PARTS}:
            return False
        with self.host("worker-1").entered():  # as a browser on another host
            url = f"http://{self.host('web').address}:{WEB_PORT}/healthz"
            with urllib.request.urlopen(url, timeout=5) as answer:
                return bool(answer.status == 200)

    # -- looking --------------------------------------------------------------------------------

    def at_work(self) -> set[str]:
        """Hosts whose process got on, schedulers with their flow folder read."""
        with psycopg.connect(self.database_url, row_factory=dict_row) as connection:
            rows = connection.execute(
                "SELECT hostname FROM job WHERE ended_at IS NULL AND progress_at > started_at"
                " AND (kind <> 'scheduler' OR detail ? 'catalog')"
            ).fetchall()
        return {row["hostname"] for row in rows}

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        with self.host("web").entered():
            return super()._call(method, path, body)


@contextmanager
def cluster(*, environment: Mapping[str, str] | None = None) -> Iterator[Ground]:
    """A cluster that works, ended afterwards. Raises ``hosts.NoHosts``."""
    with Network() as network:
        stack = Cluster(
            network,
            environment={
                "DAYLIGHT_LEASE_TTL": f"{TTL_S:g}",
                "DAYLIGHT_QUEUED_TIMEOUT_S": "3",
                # Losses are meant: none of them may use up what a task has.
                "DAYLIGHT_INFRASTRUCTURE_BUDGET": "100",
                **(environment or {}),
            },
        )
        drill = Drill(name="test", summary="a test of a cluster", play=lambda stage: None)
        try:
            stack.start()
            made = Ground(drill, stack, ttl_s=TTL_S, options={}, say=print)
            made.direct_database_url = stack.database_url
            with closing(made.questions):
                yield made
            network.heal()
            auditing.assert_nothing_hidden(made.database_url)
        finally:
            stack.end(keep=False)


def _stop(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    children.stop(process, how, grace_s=20)
