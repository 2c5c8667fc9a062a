"""The product on several hosts, with external servers: cables are pulled, hosts lose each other, links are slow.

Hosts are network namespaces (``tests/hosts.py``); packets that are lost are lost in the kernel, and
no process is told. Every test ends with the drills' checker.
"""

from __future__ import annotations

import json
import signal
from http.cookiejar import CookieJar
from typing import TYPE_CHECKING, Any, cast
from urllib.request import HTTPCookieProcessor, Request, build_opener

import pytest
import redis
from websockets.sync.client import connect

from scheduler_app.drills.ledger import START, boot_clock_s
from tests.cluster import BROKER_PORT, DATABASE_PORT, PARTS, WEB_PORT, Cluster, Part, cluster
from tests.ground import Ground
from tests.hosts import Host, NoHosts
from tests.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from websockets.sync.client import ClientConnection

BEYOND_S = 90.0
SLOW_S = 0.15  # each way


@pytest.fixture(scope="module")
def stage() -> Iterator[Ground]:
    try:
        with cluster() as made:
            yield made
    except NoHosts as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def _healed(stage: Ground) -> Iterator[None]:
    yield
    _of(stage).network.heal()


def _of(stage: Ground) -> Cluster:
    return cast("Cluster", stage.stack)


def _host(stage: Ground, name: str) -> Host:
    return _of(stage).host(name)


def _pass(stage: Ground, seconds: float, since: float, what: str) -> None:
    stage.stack.wait_for(what, lambda: boot_clock_s() > since + seconds, within_s=60)


def _holders(stage: Ground) -> dict[str, int]:
    """How many shards the scheduler of each host holds, by leases that have not run out."""
    rows = stage.rows(
        "SELECT j.hostname, count(*) AS n FROM lease l JOIN job j ON j.id = l.holder"
        " WHERE l.expires_at > clock_timestamp() GROUP BY 1"
    )
    return {row["hostname"]: row["n"] for row in rows}


def test_each_part_works_on_a_host_of_its_own(stage: Ground) -> None:
    """Workers have no flow folder and no disk in common with anybody; pages show who ran what where."""
    before = _open_incidents(stage)  # of a link that an earlier test has cut
    runs = [stage.run(flow) for flow in ("drill_fan", "drill_wait", "drill_retry", "drill_apart")]
    stage.all_holds()
    jobs = {row["hostname"]: row for row in stage.stack.rows("jobs")}
    assert jobs.keys() == {part.host for part in PARTS}
    ran = {row["hostname"] for run_id in runs for row in stage.attempts(run_id)}
    assert ran == {"worker-1", "worker-2"}
    assert _holders(stage) == {"scheduler-1": 8, "scheduler-2": 8}
    health = stage.stack.api("GET", "/api/v1/health/")
    assert health["is_healthy"]
    assert _open_incidents(stage) <= before
    (attempt,) = [row for row in stage.attempts(runs[1]) if row["resume_index"] == 1]
    done = _of(stage).manage("tasks", "log", "drill_wait", runs[1], "wait")
    assert f"fence {attempt['fence']} has begun" in done.stdout, done.stdout + done.stderr


def _open_incidents(stage: Ground) -> set[int]:
    found = stage.stack.api("GET", "/api/v1/incidents/?state=open&limit=100")
    return {one["id"] for one in found["results"]}


@pytest.mark.parametrize("how", ["nothing passes", "only the answers are lost"])
def test_a_scheduler_cut_off_from_the_database_is_replaced_and_returns(
    stage: Ground, how: str
) -> None:
    cut, database = _host(stage, "scheduler-1"), _host(stage, "database")
    stage.stack.wait_for("it leads", lambda: _holders(stage).get("scheduler-1"), within_s=BEYOND_S)
    (job,) = stage.rows(
        "SELECT id FROM job WHERE hostname = 'scheduler-1' AND ended_at IS NULL"
        " ORDER BY started_at DESC LIMIT 1"
    )
    (last,) = stage.rows("SELECT coalesce(max(id), 0) AS id FROM lease_event")
    with stage.load("drill_chain", "drill_fan", every_s=0.5):
        busy = stage.run("drill_chain", seconds=0.5)
        stage.running(busy)
        stage.note_accepted()
        since = boot_clock_s()
        if how == "nothing passes":
            cut.part_from(database)
        else:
            database.lose(cut)
        stage.recovered(
            f"scheduler host cut off from the database ({how})",
            since,
            lambda: _holders(stage) == {"scheduler-2": 16},
        )
        stage.stack.wait_for("what it led goes on", lambda: stage.ended(busy), within_s=BEYOND_S)
        _pass(stage, 2 * stage.ttl_s, since, "it is cut off for two ttl")
        _of(stage).network.heal()
        healed = boot_clock_s()
        stage.recovered(
            f"scheduler host that was cut off leads again ({how})",
            healed,
            lambda: _holders(stage).get("scheduler-1", 0) == 8,
        )
    stage.all_holds()
    said = stage.rows(
        "SELECT kind, detail FROM lease_event WHERE id > %s AND holder = %s"
        " AND kind IN ('demoted', 'fenced_write', 'expired')",
        last["id"],
        job["id"],
    )
    kinds = {row["kind"] for row in said}
    assert "expired" in kinds, "its terms ran out, for everybody to see"
    assert kinds & {"demoted", "fenced_write"}, "and it stopped leading, by itself or refused"


def test_a_worker_host_that_loses_the_database_and_not_the_broker(stage: Ground) -> None:
    """It starts nothing and takes nothing; what it had done is accepted, or told to have come late."""
    worker, database = _host(stage, "worker-2"), _host(stage, "database")
    run_id = stage.run("drill_apart", seconds=1.5)
    stage.running(run_id)
    stage.note_accepted()
    since = boot_clock_s()
    worker.part_from(database)
    _pass(stage, 2 * stage.dead_after_s, since, "for longer than a silent worker is believed")
    more = stage.run("drill_apart")
    stage.stack.wait_for(
        "messages wait for it in the broker", lambda: _waiting(stage) > 0, within_s=BEYOND_S
    )
    waited, begun = _waiting(stage), _starts(stage, run_id, more)
    pages = stage.rows("SELECT 1 FROM attempt WHERE outcome = 'lost'")
    assert pages, "what it ran was given up"
    spool = _of(stage).disk("worker-2") / "spool"
    stage.stack.wait_for(
        "what it did is kept on its disk",
        lambda: [*spool.rglob("*.report")],
        within_s=BEYOND_S,
    )
    assert _starts(stage, run_id, more) == begun, "nothing new began"
    assert _waiting(stage) >= waited, "and it took no message"
    _of(stage).network.heal()
    healed = boot_clock_s()
    stage.recovered(
        "worker host cut off from the database", healed, lambda: stage.ended(run_id, more)
    )
    stage.all_holds()


def test_a_worker_host_that_loses_the_broker_and_not_the_database(stage: Ground) -> None:
    worker, broker = _host(stage, "worker-2"), _host(stage, "broker")
    run_id = stage.run("drill_apart", seconds=2)
    line = stage.running(run_id)
    since = boot_clock_s()
    worker.part_from(broker)
    stage.stack.wait_for(
        "what runs is accepted all the same",
        lambda: any(
            row["id"] == line.attempt_id and row["is_accepted"] for row in stage.attempts(run_id)
        ),
        within_s=BEYOND_S,
    )
    _pass(stage, 2 * stage.dead_after_s, since, "for longer than a silent worker is believed")
    _of(stage).network.heal()
    healed = boot_clock_s()
    stage.recovered("worker host cut off from the broker", healed, lambda: stage.ended(run_id))
    stage.all_holds()
    assert {row["outcome"] for row in stage.attempts(run_id)} <= {"success", "failed", "deferred"}


def test_a_web_host_without_valkey_says_that_pages_poll_and_answers(stage: Ground) -> None:
    web, broker = _host(stage, "web"), _host(stage, "broker")
    with _page(stage) as page:
        _await_mode(page, "live")
        since = boot_clock_s()
        web.part_from(broker)
        _await_mode(page, "polling")
        stage.recovered("web host cut off from Valkey: pages say that they poll", since, lambda: 1)
        run_id = stage.run("drill_fan")
        stage.stack.wait_for("runs go on", lambda: stage.ended(run_id), within_s=BEYOND_S)
        _of(stage).network.heal()
        healed = boot_clock_s()
        _await_mode(page, "live")
        stage.recovered("web host that was cut off from Valkey is live", healed, lambda: 1)
    stage.all_holds()


def test_a_triggerer_host_without_a_cable_is_replaced(stage: Ground) -> None:
    waiting = [stage.run("drill_wait") for _ in range(4)]
    stage.running(waiting[0])
    since = boot_clock_s()
    _host(stage, "triggerer-1").unplug()
    more = [stage.run("drill_wait") for _ in range(4)]
    stage.recovered("triggerer host unplugged", since, lambda: stage.ended(*waiting, *more))
    _of(stage).network.heal()
    stage.stack.wait_for(
        "it works again",
        lambda: stage.rows(
            "SELECT 1 FROM job WHERE hostname = 'triggerer-1' AND ended_at IS NULL"
            " AND progress_at > clock_timestamp() - interval '2 seconds'"
        ),
        within_s=BEYOND_S,
    )
    stage.all_holds()


def test_a_far_host_works_over_a_slow_link(stage: Ground) -> None:
    """Every packet takes 150 ms each way: its worker executes, and nothing is given up for it."""
    stack = _of(stage)
    far = stack.network.add("far")
    database, broker = stack.host("database").address, stack.host("broker").address
    with far.entered():  # the proxies are processes of that host
        to_database = Proxy(DATABASE_PORT, target=database)
        to_broker = Proxy(BROKER_PORT, target=broker)
    with to_database, to_broker:
        environment = {
            name: value.replace(
                f"{database}:{DATABASE_PORT}", f"127.0.0.1:{to_database.port}"
            ).replace(f"{broker}:{BROKER_PORT}", f"127.0.0.1:{to_broker.port}")
            for name, value in stack.environment_of("far").items()
            if name.endswith("_URL")
        }
        to_database.slow(SLOW_S)
        to_broker.slow(SLOW_S)
        stack.disk("far").mkdir()
        part = Part(host="far", command=("worker", "--queues", "default", "--concurrency", "4"))
        pid = stack.start_part(part, **environment)
        stack.wait_for("the far worker works", lambda: "far" in stack.at_work(), within_s=BEYOND_S)
        since = boot_clock_s()
        with stage.load("drill_fan", every_s=0.5):
            stage.recovered(
                "a worker over a link of 300 ms: its first result",
                since,
                lambda: stage.rows(
                    "SELECT 1 FROM attempt WHERE hostname = 'far' AND outcome = 'success' LIMIT 1"
                ),
            )
        stage.all_holds()
        ran = stage.rows("SELECT outcome FROM attempt WHERE hostname = 'far'")
        assert {row["outcome"] for row in ran} == {"success"}, "none was given up"
        stage.stack.signal(pid, signal.SIGTERM)
        stack.wait_for("it has ended", lambda: not stack.is_alive(pid), within_s=BEYOND_S)


def test_when_every_cable_is_in_again_everything_is_as_it_was(stage: Ground) -> None:
    stage.run("drill_fan")
    stage.all_holds()
    stage.stack.wait_for(
        "no incident is open and every part is healthy",
        lambda: (
            (health := stage.stack.api("GET", "/api/v1/health/"))["is_healthy"]
            and not health["open_incidents"]
        ),
        within_s=BEYOND_S,
    )
    stage.stack.wait_for(
        "both schedulers lead",
        lambda: _holders(stage) == {"scheduler-1": 8, "scheduler-2": 8},
        within_s=BEYOND_S,
    )


def _waiting(stage: Ground) -> int:
    """Messages in the queue of worker-2."""
    stack = _of(stage)
    url = stack.environment_of("database")["BROKER_URL"]
    with stack.host("database").entered(), redis.Redis.from_url(url) as client:
        return int(cast("int", client.llen("daylight.apart")))


def _starts(stage: Ground, *run_ids: str) -> set[str]:
    return {x.attempt_id for x in stage.lines() if x.run_id in run_ids and x.what == START}


def _page(stage: Ground) -> ClientConnection:
    """The feed of an open page, as a browser on another host has it."""
    stack = _of(stage)
    url = f"http://{stack.host('web').address}:{WEB_PORT}"
    with stack.host("database").entered():
        jar = CookieJar()
        opener = build_opener(HTTPCookieProcessor(jar))
        opener.open(f"{url}/login/", timeout=20).close()
        csrf = next(cookie.value for cookie in jar if cookie.name == "csrftoken")
        form = f"username=admin&password=fire-drill&csrfmiddlewaretoken={csrf}".encode()
        opener.open(
            Request(f"{url}/login/", data=form, headers={"Referer": url}), timeout=20
        ).close()
        cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in jar)
        return connect(
            f"{url.replace('http', 'ws')}/ws/live",
            additional_headers={"Cookie": cookies},
            origin=cast("Any", url),
        )


def _await_mode(page: ClientConnection, mode: str) -> None:
    """The feed says so."""
    since = boot_clock_s()
    page.send(json.dumps({"sub": ["runs"]}))
    while boot_clock_s() < since + BEYOND_S:
        if json.loads(page.recv(timeout=BEYOND_S)).get("mode") == mode:
            return
    pytest.fail(f"pages are not told {mode!r}")
