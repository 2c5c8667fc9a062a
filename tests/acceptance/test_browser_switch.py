"""A real browser on a real web process: the switch, the counts, live news, keys, and three looks.

Everything that a page asks for must come from this machine; an error in the console, a breach of
the content policy or an answer of 5xx fails the test. Screenshots are kept in the test's folder.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import connection
from playwright.sync_api import expect, sync_playwright

from scheduler_app.hints.notices import Notices
from scheduler_app.processes import database
from scheduler_app.scheduler.leases import Leases
from scheduler_app.transitions.ids import uuid7
from tests.integration.dashboard import scene as scenes
from tests.stack import CHECKOUT, free_port, wait_for
from tests.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, BrowserContext, Page, Route, WebSocketRoute

PASSWORD: Final = "a-password-for-tests"
WIDE: Final = {"width": 1280, "height": 900}
NARROW: Final = {"width": 390, "height": 844}
NEWS_WITHIN_MS: Final = 8000


def _chromium() -> str:
    found = (
        os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    )
    if found:
        return found
    reason = "no Chromium on this machine: install the package chromium, or name one in CHROMIUM"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for the whole module."""
    path = _chromium()
    with sync_playwright() as playwright, pytest.MonkeyPatch.context() as patch:
        # Playwright runs an event loop in this thread; rows are read between its steps.
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        started = playwright.chromium.launch(
            executable_path=path,
            args=["--no-sandbox", "--disable-gpu", "--force-color-profile=srgb"],
        )
        yield started
        started.close()


class Site:
    """A web process over a scene, and the scheduler of that scene in the test's hand."""

    def __init__(self, url: str, world: World, scene: scenes.Scene) -> None:
        self.url = url
        self.world = world
        self.scene = scene
        self.notices = Notices(settings.CACHE_URL)


@pytest.fixture(scope="module")
def web(django_db_setup: None, django_db_blocker: Any) -> Iterator[str]:
    """The address of a web process on the database of the tests."""
    del django_db_setup
    with django_db_blocker.unblock():
        name = str(connection.settings_dict["NAME"])
    with _web(name) as url:
        yield url


@pytest.fixture
def site(transactional_db: None, web: str) -> Iterator[Site]:
    """A scene in a database, and a web process that shows it."""
    del transactional_db
    get_user_model().objects.create_user("ana", password=PASSWORD)
    with database.connect("scheduler") as raw:
        leases = Leases(holder=uuid7(), ttl_s=60, renew_interval_s=12, deadline_s=40)
        leases.balance(raw, dead_after_s=60)
        world = World(raw, leases)
        yield Site(web, world, scenes.build(world))


@contextmanager
def _web(database_name: str) -> Iterator[str]:
    port = free_port()
    place = urlsplit(os.environ["DATABASE_URL"])
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "uvicorn",
            "scheduler_app.config.asgi:application",
            "--host=127.0.0.1",
            f"--port={port}",
            "--log-level=warning",
        ],
        cwd=CHECKOUT,
        env={
            **os.environ,
            "DATABASE_URL": urlunsplit(place._replace(path=f"/{database_name}")),
            "DAYLIGHT_SECRET_KEY": settings.SECRET_KEY,
            "DAYLIGHT_PROCESS": "web",
        },
    )
    try:
        wait_for("the web process answers", lambda: _answers(port), within_s=30)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(port: int) -> bool:
    import socket  # noqa: PLC0415 - beside its only use

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def visit(
    browser: Browser, site: Site, *, allowed: str = "", **options: Any
) -> Iterator[tuple[BrowserContext, Page]]:
    """A signed-in tab; leaving it fails on whatever went wrong in it, but for what is ``allowed``."""
    context = browser.new_context(
        locale="en-GB", timezone_id="UTC", reduced_motion="reduce", **{"viewport": WIDE, **options}
    )
    wrong: list[str] = []
    context.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
    context.on("weberror", lambda e: wrong.append(str(e.error)))
    context.on("request", lambda r: wrong.append(r.url) if _is_foreign(r.url, site) else None)
    context.on(
        "response", lambda r: wrong.append(f"{r.status} {r.url}") if r.status >= 500 else None
    )
    page = context.new_page()
    page.goto(f"{site.url}/login/")
    page.fill("#id_username", "ana")
    page.fill("#id_password", PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{site.url}/")
    try:
        yield context, page
    finally:
        context.close()
    assert [text for text in wrong if not (allowed and re.search(allowed, text))] == []


def _is_foreign(url: str, site: Site) -> bool:
    return not url.startswith((site.url, site.url.replace("http", "ws"), "data:", "blob:"))


def counts(page: Page) -> tuple[int, int, int]:
    """Shown, filtered and total of the count line."""
    line = page.locator(".counts")
    shown, filtered, total = (
        int(line.get_attribute(f"data-{name}") or -1) for name in ("shown", "filtered", "total")
    )
    return shown, filtered, total


def test_the_switch_on_the_run_page_shows_what_was_filtered_and_the_counts_add_up(
    browser: Browser, site: Site, tmp_path: Path
) -> None:
    run = f"{site.url}/runs/{site.scene.healed}/"
    with visit(browser, site) as (_, page):
        for tab in ("summary", "attempts", "events"):
            page.goto(f"{run}?tab={tab}")
            shown, filtered, total = counts(page)
            assert shown + filtered == total
            assert page.locator("[data-row]").count() == shown
            assert page.locator("[data-row].is-filtered").count() == 0
            page.get_by_role("switch", name="Show filtered").click()
            page.wait_for_url(re.compile("filtered=1"))
            expect(page.get_by_role("switch", name="Show filtered")).to_be_checked()
            expect(page.locator("#lens-strip")).to_contain_text("Showing filtered records")
            assert counts(page) == (shown, filtered, total)
            assert page.locator("[data-row]").count() == total
            rows = page.locator("[data-row].is-filtered")
            assert rows.count() == filtered
            for at in range(filtered):
                assert rows.nth(at).locator(".chip-filtered").inner_text().strip()
                assert len(rows.nth(at).locator(".why").last.inner_text()) > 40
        link = page.get_by_role("link", name="CSV").get_attribute("href")
        lines = page.request.get(f"{site.url}{link}").text().splitlines()
        assert len(lines) - 1 == counts(page)[2]
        reasons = page.locator("[data-reason]")
        numbers = [int(text.split()[0]) for text in reasons.all_inner_texts()]
        assert sum(numbers) == counts(page)[1] == 2
        reasons.first.click()
        page.wait_for_url(re.compile("why="))
        assert page.locator("[data-row]").count() == numbers[0]
        page.screenshot(path=tmp_path / "one-reason.png", full_page=True)


def test_the_key_v_turns_the_switch_and_the_lens_goes_along(browser: Browser, site: Site) -> None:
    with visit(browser, site) as (_, page):
        page.goto(f"{site.url}/runs/{site.scene.healed}/?tab=attempts")
        page.keyboard.press("v")
        page.wait_for_url(re.compile("filtered=1"))
        page.locator("[data-row].is-filtered .lead a").click()
        page.wait_for_url(re.compile("/attempts/.*filtered=1"))
        expect(page.locator("#standing-title")).to_have_text("Filtered")
        page.keyboard.press("v")
        page.wait_for_function("!location.search.includes('filtered')")
        page.keyboard.press("g")
        page.keyboard.press("l")
        page.wait_for_url(f"{site.url}/leases/")


def test_everything_works_without_scripts(browser: Browser, site: Site) -> None:
    with visit(browser, site, java_script_enabled=False) as (_, page):
        page.goto(f"{site.url}/runs/{site.scene.healed}/?tab=attempts")
        page.get_by_role("switch", name="Show filtered").click()
        assert page.locator("[data-row].is-filtered").count() == counts(page)[1] == 1
        page.goto(f"{site.url}/task-instances/{site.scene.retried}/?tab=log&filtered=1")
        page.locator("[data-row].is-filtered a").click()
        expect(page.locator("pre.log")).to_contain_text("TimeoutError")
        page.goto(f"{site.url}/runs/")
        page.select_option("#filter-state", "failed")
        page.get_by_role("button", name="Filter").click()
        assert page.locator("[data-row]").count() == 1
        page.goto(f"{site.url}/flows/hourly_sync/")
        page.get_by_role("button", name="Trigger run").click()
        page.wait_for_url(re.compile(r"/runs/\d+/$"))


def test_news_comes_by_itself_and_a_filtered_record_changes_only_the_count(
    browser: Browser, site: Site
) -> None:
    world, run = site.world, site.scene.running
    with visit(browser, site) as (_, page):
        page.goto(f"{site.url}/runs/{run}/?tab=attempts")
        expect(page.locator("#live")).to_have_attribute("data-mode", "live", timeout=NEWS_WITHIN_MS)
        assert counts(page) == (1, 0, 1)
        box = page.locator("#filter-task_id").element_handle()
        scenes.fail_again(world, run)
        world.tick(run)
        site.notices.changed([f"run:{run}"])
        expect(page.locator(".counts")).to_have_attribute(
            "data-filtered", "1", timeout=NEWS_WITHIN_MS
        )
        assert page.locator("[data-row].is-filtered").count() == 0
        assert page.evaluate(
            "([old, now]) => old === now", [box, page.locator("#filter-task_id").element_handle()]
        )


def test_a_page_holds_still_while_somebody_types_and_says_what_waits(
    browser: Browser, site: Site
) -> None:
    world, run = site.world, site.scene.running
    with visit(browser, site) as (_, page):
        page.goto(f"{site.url}/runs/{run}/?tab=attempts")
        expect(page.locator("#live")).to_have_attribute("data-mode", "live", timeout=NEWS_WITHIN_MS)
        page.wait_for_timeout(1000)  # the refresh that follows the opening of the socket
        page.fill("#filter-task_id", "extr")
        scenes.fail_again(world, run)
        world.tick(run)
        site.notices.changed([f"run:{run}"])
        expect(page.locator("#live .words")).to_contain_text(
            "waiting · apply (r)", timeout=NEWS_WITHIN_MS
        )
        assert counts(page) == (1, 0, 1)
        page.locator("#live").click()
        expect(page.locator(".counts")).to_have_attribute(
            "data-filtered", "1", timeout=NEWS_WITHIN_MS
        )
        assert page.input_value("#filter-task_id") == "extr"


def test_an_older_picture_that_comes_late_is_dropped(browser: Browser, site: Site) -> None:
    run = site.scene.running
    with visit(browser, site) as (_, page):
        page.goto(f"{site.url}/runs/{run}/")
        rev = int(page.locator("#page").get_attribute("data-rev") or 0)
        told = {"rev": rev - 1}

        def answer(route: Route) -> None:
            if route.request.headers.get("hx-request"):
                route.fulfill(
                    body="<h1>from the past</h1>",
                    headers={"Content-Type": "text/html", "Daylight-Rev": str(told["rev"])},
                )
            else:
                route.fallback()

        page.route(re.compile(f"/runs/{run}/"), answer)
        with page.expect_response(re.compile(f"/runs/{run}/")):
            page.keyboard.press("r")
        page.wait_for_timeout(300)
        assert page.locator("h1").inner_text() == "manual__running"
        told["rev"] = rev + 10**9
        wait_for("a newer picture is taken", lambda: _taken_after_a_key(page), every_s=0)


def _taken_after_a_key(page: Page) -> bool:
    page.keyboard.press("r")
    page.wait_for_timeout(300)
    return page.locator("h1").inner_text() == "from the past"


def test_a_log_grows_while_it_is_read(browser: Browser, site: Site) -> None:
    with visit(browser, site) as (_, page):
        attempt = scenes.printing(site.scene)
        page.goto(f"{site.url}/attempts/{attempt.id}/")
        expect(page.locator("pre.log .ansi-green")).to_have_text("rows 4096")
        assert page.locator("pre.log .line").count() == 2
        expect(page.locator("#live")).to_have_attribute("data-mode", "live", timeout=NEWS_WITHIN_MS)
        scenes.print_more(site.world, attempt, b"page 2 of 10\n<b>not bold</b>\n")
        expect(page.locator("pre.log .line")).to_have_count(4, timeout=NEWS_WITHIN_MS)
        expect(page.locator("pre.log .line").last).to_have_text("<b>not bold</b>")


def test_without_a_socket_the_page_polls_and_says_so(browser: Browser, site: Site) -> None:
    with visit(browser, site, allowed="WebSocket") as (context, page):
        context.route_web_socket(re.compile("/ws/live"), lambda ws: ws.close())
        page.goto(f"{site.url}/runs/")
        expect(page.locator("#live .words")).to_have_text("Polling 10 s")
        world = site.world
        world.run(scenes.flow("hourly_sync"), "manual__new")
        expect(page.locator("[data-row]")).to_have_count(4, timeout=20_000)


def test_the_grid_is_one_stop_of_the_tab_key_and_arrows_move_in_it(
    browser: Browser, site: Site
) -> None:
    with visit(browser, site) as (_, page):
        page.goto(f"{site.url}/flows/nightly_sales/?tab=grid")
        links = page.locator("[data-grid] a")
        expect(page.locator('[data-grid] a[tabindex="0"]')).to_have_count(1)
        first = links.first
        first.focus()
        page.keyboard.press("ArrowDown")
        expect(page.locator("[data-grid] tbody tr:first-child th a")).not_to_be_focused()
        expect(page.locator("[data-grid] tbody tr:first-child td:nth-child(2) a")).to_be_focused()
        page.keyboard.press("End")
        expect(page.locator("[data-grid] tbody tr:first-child td:last-child a")).to_be_focused()
        page.keyboard.press("Home")
        expect(page.locator("[data-grid] tbody tr:first-child th a")).to_be_focused()
        expect(page.locator('[data-grid] a[tabindex="0"]')).to_have_count(1)


def test_a_page_whose_server_hears_of_nothing_polls_and_says_so(
    browser: Browser, site: Site
) -> None:
    def deaf(socket: WebSocketRoute) -> None:
        socket.on_message(lambda _: socket.send(json.dumps({"mode": "polling", "hb": {}})))

    with visit(browser, site, allowed="WebSocket") as (context, page):
        context.route_web_socket(re.compile("/ws/live"), deaf)
        page.goto(f"{site.url}/runs/")
        expect(page.locator("#live .words")).to_have_text("Polling 10 s")
        rows = page.locator("[data-row]").count()
        site.world.run(scenes.flow("hourly_sync"), "manual__unheard")
        expect(page.locator("[data-row]")).to_have_count(rows + 1, timeout=30_000)


@pytest.mark.parametrize(
    ("look", "options"),
    [
        ("light", {"color_scheme": "light"}),
        ("dark", {"color_scheme": "dark"}),
        ("narrow", {"viewport": NARROW}),
    ],
)
def test_no_page_is_wider_than_its_screen(
    browser: Browser, site: Site, tmp_path: Path, look: str, options: dict[str, Any]
) -> None:
    scene = site.scene
    addresses = {
        "home": "/",
        "flows": "/flows/",
        "runs": "/runs/?filtered=1",
        "run": f"/runs/{scene.failed}/",
        "run-filtered": f"/runs/{scene.healed}/?tab=filtered",
        "graph": f"/runs/{scene.healed}/?tab=graph",
        "events": "/executor-events/?filtered=1",
        "log": f"/task-instances/{scene.retried}/?tab=log&filtered=1",
        "leases": "/leases/",
    }
    with visit(browser, site, **options) as (_, page):
        for name, address in addresses.items():
            page.goto(site.url + address)
            page.screenshot(path=tmp_path / f"{name}-{look}.png", full_page=True)
            beyond = page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            assert beyond <= 0, (address, beyond)
            marks = page.locator("svg.sign").first
            if marks.count():
                # It has a size; one that news replaces meanwhile is looked for again.
                expect(marks, address).to_be_visible()
