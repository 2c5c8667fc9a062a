"""Reading pages as a browser would: parsed by the HTML standard, faults included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import html5lib

from scheduler_app.models import Attempt, ExecutorEvent, Run, TakeOver, TaskInstance

if TYPE_CHECKING:
    from collections.abc import Iterator
    from xml.etree.ElementTree import Element

    from django.test import Client

    from tests.integration.dashboard.scene import Scene


SVG = "http://www.w3.org/2000/svg"


@dataclass(frozen=True, slots=True)
class Counts:
    """The count line of a page."""

    shown: int
    filtered: int
    total: int
    by_reason: dict[str, int]


class Page:
    """One answer, parsed."""

    def __init__(self, client: Client, address: str) -> None:
        self.response = client.get(address)
        self.text = self.response.content.decode()
        parser = html5lib.HTMLParser(namespaceHTMLElements=False)
        self.root: Any = parser.parse(self.text)
        self.faults = [str(error) for error in parser.errors]

    def all(self, tag: str) -> Iterator[Element]:
        """Every element with this tag, those inside pictures too."""
        for element in self.root.iter():
            if element.tag in {tag, f"{{{SVG}}}{tag}"}:
                yield element

    def counts(self) -> Counts:
        """What the one count line says."""
        (line,) = (e for e in self.all("div") if "counts" in e.get("class", "").split())
        reasons = {
            str(e.get("data-reason")): int("".join(e.itertext()).split()[0])
            for e in line.iter("a")
            if e.get("data-reason")
        }
        return Counts(
            int(line.get("data-shown", "")),
            int(line.get("data-filtered", "")),
            int(line.get("data-total", "")),
            reasons,
        )

    def has_counts(self) -> bool:
        """Whether there is a count line."""
        return any("counts" in e.get("class", "").split() for e in self.all("div"))

    def rows(self) -> list[Element]:
        """The listed records."""
        return [e for e in self.root.iter() if e.get("data-row") is not None]

    def filtered_rows(self) -> list[Element]:
        """The listed records that are drawn as filtered."""
        return [e for e in self.rows() if "is-filtered" in e.get("class", "").split()]

    def links(self) -> list[str]:
        """Every address that the page leads to."""
        return [str(e.get("href")) for e in self.all("a") if e.get("href")]


def lists(scene: Scene) -> list[str]:
    """Every page with a count line."""
    return [
        "/flows/",
        "/flows/nightly_sales/",
        "/flows/nightly_sales/?tab=versions",
        "/flows/nightly_sales/?tab=grid",
        "/runs/",
        "/task-instances/",
        "/attempts/",
        "/executor-events/",
        "/leases/",
        *(f"/leases/?tab={tab}" for tab in ("take-overs", "history", "inquiries")),
        f"/leases/take-overs/{TakeOver.objects.order_by('id')[0].id}/",
        "/jobs/",
        "/pools/",
        "/limits/",
        "/filtered/",
        "/ghosts/",
        "/ghosts/audits/",
        "/reviews/",
        "/guards/",
        *(
            f"/runs/{scene.healed}/?tab={tab}"
            for tab in ("summary", "graph", "timeline", "attempts", "events", "details")
        ),
        *(f"/task-instances/{scene.retried}/?tab={tab}" for tab in ("attempts", "log", "events")),
        f"/attempts/{scene.ghost}/",
    ]


def every_page(scene: Scene) -> list[str]:
    """Every page that there is."""
    event = ExecutorEvent.objects.order_by("id").values_list("id", flat=True)[0]
    set_aside = Attempt.objects.filter(filter_code__isnull=False, ti__isnull=False)[0]
    return [
        *lists(scene),
        "/",
        "/flows/nightly_sales/?tab=graph",
        "/flows/nightly_sales/?tab=details",
        "/flows/nightly_sales/trigger/",
        f"/runs/{scene.healed}/?tab=filtered",
        f"/runs/{scene.failed}/",
        f"/runs/{scene.failed}/?tab=graph",
        f"/runs/{scene.running}/",
        f"/task-instances/{scene.retried}/?tab=details",
        f"/attempts/{set_aside.id}/",
        f"/executor-events/{event}/",
    ]


def with_lens(address: str, value: str) -> str:
    """The address with the lens set."""
    return f"{address}{'&' if '?' in address else '?'}filtered={value}"


ROWS_OF_LIST = {
    "/runs/": Run,
    "/task-instances/": TaskInstance,
    "/attempts/": Attempt,
    "/executor-events/": ExecutorEvent,
}
