"""Links between processes, database and broker are cut, held and made to lose answers.

The stack's own links go through two proxies; a worker that a test starts has two of its own, so that
it alone can lose the database, or the broker. The servers are those of the test run.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, urlsplit

import psycopg
import pytest

from scheduler_app.drills.ledger import END, START, boot_clock_s
from scheduler_app.launch import embedded
from scheduler_app.sql import load
from tests.ground import Ground, ground
from tests.proxy import Proxy

if TYPE_CHECKING:
    from pathlib import Path

DATABASE = "daylight_links"
SCHEDULER = b"daylight scheduler\0"
CHILD = b"daylight worker child\0"


def _text_of(statement: str) -> bytes:
    """What the statement says on the wire: its longest piece between two parameters."""
    return max(re.split(r"%\(\w+\)s", load(statement)), key=len).encode()


# What a request is told by: its text, the connection that it comes over, and what its transaction
# did before. A new connection sends a statement's text; later it is known by a name.
ANSWERS: dict[str, tuple[bytes, bytes, bytes]] = {
    "the commit of a tick that dispatched": (b"COMMIT", SCHEDULER, _text_of("dispatch_attempts")),
    "the note that messages were published": (b"SET publish_count = greatest", SCHEDULER, b""),
    "a claim": (_text_of("claim_attempt"), CHILD, b""),
    "a finish": (_text_of("finish_attempt"), CHILD, b""),
    "a deferral": (_text_of("defer_attempt"), CHILD, b""),
}


@dataclass(frozen=True, slots=True)
class Links:
    """The proxies, and what is behind them."""

    database: Proxy
    broker: Proxy
    own_database: Proxy  # of a worker that a test starts
    own_broker: Proxy

    def of(self, database: Proxy, broker: Proxy) -> dict[str, str]:
        """The addresses of the servers by these links."""
        return {
            "DATABASE_URL": _database_url(database.port),
            "BROKER_URL": _broker_url(broker.port),
            "CACHE_URL": _broker_url(broker.port),
        }

    def heal(self) -> None:
        """Every link passes everything."""
        for proxy in (self.database, self.broker, self.own_database, self.own_broker):
            proxy.slow(0)
            proxy.heal()


def _database_url(port: int) -> str:
    parts = urlsplit(os.environ["DATABASE_URL"])
    # Without TLS a proxy can read what passes.
    return (
        f"postgresql://{parts.username}:{quote(parts.password or '')}@127.0.0.1:{port}/{DATABASE}"
        "?sslmode=disable&gssencmode=disable"
    )


def _broker_url(port: int) -> str:
    parts = urlsplit(os.environ["BROKER_URL"])
    return f"redis://:{quote(parts.password or '')}@127.0.0.1:{port}/7"


@pytest.fixture(scope="module")
def links() -> Iterator[Links]:
    address = os.environ["DATABASE_URL"]
    (port,) = parse_qs(urlsplit(address).query)["port"]
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {DATABASE} TEMPLATE {embedded.DATABASE}")
    ports = [int(port), urlsplit(os.environ["BROKER_URL"]).port or 0] * 2
    database, broker, own_database, own_broker = map(Proxy, ports)
    try:
        yield Links(database, broker, own_database, own_broker)
    finally:
        for proxy in (database, broker, own_database, own_broker):
            proxy.close()


@pytest.fixture(scope="module")
def stage(links: Links) -> Iterator[Ground]:
    with ground(
        flags=("--concurrency", "3", "--schedulers", "2"),
        environment={
            **links.of(links.database, links.broker),
            "DAYLIGHT_QUEUED_TIMEOUT_S": "3",
        },
    ) as made:
        made.direct_database_url = _database_url(int(_port_of_database()))
        yield made


def _port_of_database() -> str:
    return parse_qs(urlsplit(os.environ["DATABASE_URL"]).query)["port"][0]


@pytest.fixture(autouse=True)
def _healed(links: Links) -> Iterator[None]:
    yield
    links.heal()


def _own_worker(stage: Ground, links: Links, name: str) -> int:
    """A worker for the queue ``apart`` whose links are its own; it takes deliveries."""
    pid = stage.stack.spawn(
        f"worker-{name}",
        *("worker", "--queues", "apart", "--name", name, "--concurrency", "2"),
        environment=links.of(links.own_database, links.own_broker),
    )
    stage.stack.wait_for("it works", lambda: _gets_on(stage, name), within_s=60)
    return pid


def _gets_on(stage: Ground, name: str) -> bool:
    return any(
        row["name"] == name and row["progress_at"] > row["started_at"]
        for row in stage.stack.rows("jobs")
    )


def _end(stage: Ground, pid: int) -> None:
    stage.stack.signal(pid, signal.SIGTERM)


@pytest.mark.parametrize("what", ANSWERS)
def test_an_answer_that_is_lost_loses_and_doubles_nothing(
    stage: Ground, links: Links, what: str
) -> None:
    at, of, inside = ANSWERS[what]
    stage.stack.wait_for("it is quiet", stage.is_settled, within_s=60)
    # New connections send texts; this one is made to be new.
    links.database.cut(of)
    trap = links.database.trap(at, of=of, inside=inside)
    since = boot_clock_s()
    # Longer than the slots are enough for: of what is claimed at once no publication is noted.
    fan = stage.run("drill_fan", seconds=1)
    runs = [fan, stage.run("drill_chain"), stage.run("drill_wait")]
    trap.wait()
    stage.recovered(f"the answer to {what} is lost", since, lambda: stage.ended(*runs))
    stage.all_holds()
    attempts = [row for run_id in runs for row in stage.attempts(run_id)]
    assert {row["dispatch_no"] for row in attempts} == {1}, "nothing was dispatched again"
    assert {row["try_number"] for row in attempts} == {1}, "no retry was used"
    starts = [line for run_id in runs for line in stage.starts_of(run_id)]
    assert len(starts) == len(attempts) == 4 + 3 + 6


def test_a_database_that_is_away_costs_time_and_no_result(stage: Ground, links: Links) -> None:
    runs = [stage.run("drill_long", seconds=2) for _ in range(2)]
    first = [stage.running(run_id) for run_id in runs]
    stage.note_accepted()
    since = boot_clock_s()
    links.database.refuse()
    stage.stack.wait_for(
        "the executions end while the database is away",
        lambda: (
            {x.attempt_id for x in stage.lines() if x.what == END}
            >= {line.attempt_id for line in first}
        ),
        within_s=60,
    )
    stage.stack.wait_for("it is away for 8 s", lambda: boot_clock_s() > since + 8, within_s=60)
    links.database.heal()
    healed = boot_clock_s()
    after = stage.run("drill_chain")
    stage.recovered("database away for 8 s", healed, lambda: stage.ended(*runs, after))
    stage.all_holds()
    for run_id in runs:
        kept = [row for row in stage.attempts(run_id) if row["is_accepted"]]
        assert len(kept) == 1


def test_a_database_that_holds_every_answer_stops_nothing_for_good(
    stage: Ground, links: Links
) -> None:
    runs = [stage.run("drill_chain"), stage.run("drill_wait")]
    stage.running(runs[0])
    demotions = _demotions(stage)
    links.database.hold()
    since = boot_clock_s()
    stage.stack.wait_for("it is held for 6 s", lambda: boot_clock_s() > since + 6, within_s=60)
    links.database.heal()
    healed = boot_clock_s()
    stage.recovered("database link held for 6 s", healed, lambda: stage.ended(*runs))
    assert _demotions(stage) > demotions, "leaders do not trust their leases so long"
    stage.all_holds()


def test_a_broker_that_hangs_holds_up_no_decision(stage: Ground, links: Links) -> None:
    busy = [stage.run("drill_long", seconds=3) for _ in range(2)]
    for run_id in busy:
        stage.running(run_id)
    kinds = Counter(row["kind"] for row in stage.stack.rows("lease-events"))
    links.broker.hold()
    since = boot_clock_s()
    runs = [stage.run("drill_chain"), stage.run("drill_fan")]
    stage.stack.wait_for(
        "attempts are issued all the same",
        lambda: all(stage.attempts(run_id) for run_id in runs),
        within_s=60,
    )
    stage.recovered("runs end while the broker hangs", since, lambda: stage.ended(*busy))
    longest_s = 0.0
    while not stage.rows("SELECT 1 FROM incident WHERE kind = 'carrier_away'"):
        assert boot_clock_s() < since + 60, "an incident says that the broker takes nothing"
        (row,) = stage.rows(
            "SELECT coalesce(max(extract(epoch from clock_timestamp() - xact_start)), 0)::float8"
            " AS open_s FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name LIKE 'daylight%%' AND state LIKE 'idle in transaction%%'"
        )
        longest_s = max(longest_s, row["open_s"])
        time.sleep(0.05)
    assert longest_s < 1.0, "no transaction waits for the broker"
    assert kinds == Counter(row["kind"] for row in stage.stack.rows("lease-events")), (
        "no leader lost or gave up a shard"
    )
    links.broker.heal()
    healed = boot_clock_s()
    stage.recovered("broker that hung answers again", healed, lambda: stage.ended(*runs))
    stage.all_holds()
    attempts = [row for run_id in runs for row in stage.attempts(run_id)]
    assert {row["dispatch_no"] for row in attempts} == {1}
    stage.stack.wait_for(
        "the incident is over",
        lambda: (
            not stage.rows(
                "SELECT 1 FROM incident WHERE kind = 'carrier_away' AND resolved_at IS NULL"
            )
        ),
        within_s=60,
    )


def test_a_worker_that_loses_the_database_and_not_the_broker(stage: Ground, links: Links) -> None:
    pid = _own_worker(stage, links, "no-database")
    run_id = stage.run("drill_apart", seconds=1.5)
    stage.running(run_id)
    stage.note_accepted()
    since = boot_clock_s()
    links.own_database.refuse()
    stage.stack.wait_for(
        "it is away for longer than a silent worker is believed",
        lambda: boot_clock_s() > since + 2 * stage.dead_after_s,
        within_s=60,
    )
    begun = {x.attempt_id for x in stage.lines() if x.run_id == run_id and x.what == START}
    stage.stack.wait_for(
        "nothing new begins meanwhile",
        lambda: boot_clock_s() > since + 2 * stage.dead_after_s + 1,
        within_s=60,
    )
    assert begun == {x.attempt_id for x in stage.lines() if x.run_id == run_id and x.what == START}
    links.own_database.heal()
    healed = boot_clock_s()
    stage.recovered("a worker alone loses the database", healed, lambda: stage.ended(run_id))
    stage.all_holds()
    _end(stage, pid)


def test_a_worker_that_loses_the_broker_and_not_the_database(stage: Ground, links: Links) -> None:
    pid = _own_worker(stage, links, "no-broker")
    run_id = stage.run("drill_apart", seconds=2)
    line = stage.running(run_id)
    links.own_broker.refuse()
    stage.stack.wait_for(
        "what runs is accepted all the same",
        lambda: any(
            row["id"] == line.attempt_id and row["is_accepted"] for row in stage.attempts(run_id)
        ),
        within_s=60,
    )
    links.own_broker.heal()
    healed = boot_clock_s()
    stage.recovered("a worker alone loses the broker", healed, lambda: stage.ended(run_id))
    stage.all_holds()
    lost = [row for row in stage.attempts(run_id) if row["outcome"] == "lost"]
    assert not lost, "its beats went on"
    _end(stage, pid)


def test_a_slow_database_costs_no_lease_below_the_deadline(stage: Ground, links: Links) -> None:
    """F9: 40 ms there and back for two ttls: a turn is long, and each of its steps is short."""
    stage.stack.wait_for("it is quiet", stage.is_settled, within_s=60)
    before = _changes(stage)
    links.database.slow(0.02)
    since = boot_clock_s()
    runs = [stage.run("drill_chain"), stage.run("drill_fan"), stage.run("drill_wait")]
    stage.recovered("database link slow by 40 ms", since, lambda: stage.ended(*runs))
    stage.stack.wait_for(
        "two ttls pass", lambda: boot_clock_s() > since + 2 * stage.ttl_s, within_s=60
    )
    links.heal()
    stage.all_holds()
    assert _changes(stage) == before, "nobody lost a shard"


def test_leaders_of_a_database_that_is_too_slow_step_down_cleanly(
    stage: Ground, links: Links
) -> None:
    """F9: an answer takes longer than a lease is trusted; nobody decides, and nobody pretends to."""
    run_id = stage.run("drill_long", seconds=3)
    stage.running(run_id)
    stage.note_accepted()
    demotions, refused = _demotions(stage), _fenced(stage)
    links.database.slow(1.5)
    since = boot_clock_s()
    stage.stack.wait_for(
        "it was slow for two ttls", lambda: boot_clock_s() > since + 2 * stage.ttl_s, within_s=60
    )
    links.heal()
    healed = boot_clock_s()
    more = stage.run("drill_chain")
    stage.recovered("database link slow by 3 s", healed, lambda: stage.ended(run_id, more))
    stage.all_holds()
    assert _demotions(stage) > demotions, "they stopped deciding by themselves"
    assert _fenced(stage) - refused <= _shards(stage), "at most the write under way was refused"


def test_a_server_without_a_free_connection_costs_time_and_no_lease(
    stage: Ground, links: Links
) -> None:
    """F25: somebody takes every connection that is left. Who leads has his own, and keeps them."""
    del links
    stage.stack.wait_for("it is quiet", stage.is_settled, within_s=60)
    before = _changes(stage)
    with ExitStack() as hog:
        since = boot_clock_s()
        with contextlib.suppress(psycopg.OperationalError):
            while True:
                hog.enter_context(psycopg.connect(os.environ["DATABASE_URL"]))
        runs = [stage.run("drill_chain"), stage.run("drill_fan"), stage.run("drill_apart")]
        stage.stack.wait_for(
            "nobody gets one for two ttls",
            lambda: boot_clock_s() > since + 2 * stage.ttl_s,
            within_s=60,
        )
    healed = boot_clock_s()
    worker = stage.stack.spawn("worker-late", "worker", "--queues", "apart", "--concurrency", "2")
    stage.recovered("server without a free connection", healed, lambda: stage.ended(*runs))
    stage.all_holds()
    assert _changes(stage) == before, "nobody lost a shard"
    _end(stage, worker)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk with little room."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_of_logs_costs_lines_and_no_result(
    stage: Ground, links: Links, small_disk: Path
) -> None:
    pid = stage.stack.spawn(
        "worker-full",
        *("worker", "--queues", "apart", "--name", "full", "--concurrency", "2"),
        environment={
            **links.of(links.own_database, links.own_broker),
            "DAYLIGHT_DATA_DIR": str(small_disk),
        },
    )
    stage.stack.wait_for("it works", lambda: _gets_on(stage, "full"), within_s=60)
    before = stage.run("drill_apart")
    stage.stack.wait_for("it has read the flow", lambda: stage.ended(before), within_s=60)
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass
    since = boot_clock_s()
    run_id = stage.run("drill_apart")
    stage.recovered("disk of a worker full", since, lambda: stage.ended(run_id))
    filler.unlink()
    after = stage.run("drill_apart")
    stage.stack.wait_for("and when there is room again", lambda: stage.ended(after), within_s=60)
    stage.all_holds()
    _end(stage, pid)


def _demotions(stage: Ground) -> int:
    """How often a leader stopped leading by itself."""
    return sum(row["kind"] == "demoted" for row in stage.stack.rows("lease-events"))


def _fenced(stage: Ground) -> int:
    """Refused writes that are recorded."""
    return sum(row["kind"] == "fenced_write" for row in stage.stack.rows("lease-events"))


def _shards(stage: Ground) -> int:
    return len(stage.stack.rows("leases"))


def _changes(stage: Ground) -> Counter[str]:
    """Lease events that say that somebody lost a shard."""
    kinds = Counter(row["kind"] for row in stage.stack.rows("lease-events"))
    return Counter({kind: kinds[kind] for kind in ("expired", "demoted", "fenced_write")})
