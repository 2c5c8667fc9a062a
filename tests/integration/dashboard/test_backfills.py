"""The pages of backfills: the form with its preview, the list, one of them, and its acts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scheduler_app.models import Backfill, BackfillDate, Flow
from tests.factories import make_flow

if TYPE_CHECKING:
    from django.test import Client

pytestmark = pytest.mark.django_db(transaction=True)

FORM = {
    "from_date": "2026-01-01",
    "to_date": "2026-01-04",
    "direction": "forwards",
    "reprocess": "none",
    "max_active_runs": "2",
    "reason": "the source was late",
}


def test_a_range_is_previewed_begun_and_shown(reader: Client) -> None:
    make_flow(flow_id="sales")
    assert 'href="/flows/sales/backfill/"' in reader.get("/flows/sales/").content.decode()
    page = "/flows/sales/backfill/"
    assert "Begin with" not in reader.get(page).content.decode()
    preview = reader.post(page, {**FORM, "preview": ""}).content.decode()
    assert "Begin with 3 dates" in preview
    assert "3 created" in preview
    assert not Backfill.objects.exists()
    begun = reader.post(page, {**FORM, "begin": ""})
    number = Backfill.objects.get().pk
    assert begun.headers["Location"] == f"/backfills/{number}/"
    shown = reader.get(f"/backfills/{number}/").content.decode()
    assert "0 of 3 dates are done (0 skipped), 0 runs are active of at most 2, 3 dates wait." in (
        " ".join(shown.split())
    )
    listed = reader.get("/backfills/?state=running").content.decode()
    assert f'href="/backfills/{number}/"' in listed
    assert "No backfills match" in reader.get("/backfills/?state=ended").content.decode()


def test_it_is_paused_and_cancelled_with_a_reason(reader: Client) -> None:
    make_flow(flow_id="sales")
    reader.post("/flows/sales/backfill/", {**FORM, "begin": ""})
    number = Backfill.objects.get().pk
    assert reader.post(f"/backfills/{number}/pause/", {"reason": " "}).status_code == 400
    reader.post(f"/backfills/{number}/pause/", {"reason": "too much"})
    assert Backfill.objects.get().paused_at is not None
    reader.post(f"/backfills/{number}/unpause/", {"reason": "go on"})
    assert Backfill.objects.get().paused_at is None
    sheet = reader.get(f"/backfills/{number}/limit/").content.decode()
    assert "0 of its runs are active now, of at most 2" in sheet
    for bad in ("0", "-1", "many", "9999999999"):
        typed = {"max_active_runs": bad, "reason": "r"}
        assert reader.post(f"/backfills/{number}/limit/", typed).status_code == 400, bad
    reader.post(f"/backfills/{number}/limit/", {"max_active_runs": "7", "reason": "more"})
    assert Backfill.objects.get().max_active_runs == 7
    Flow.objects.update(frozen_at=Backfill.objects.get().created_at)
    page = reader.get(f"/backfills/{number}/").content.decode()
    assert "Its flow is frozen" in page
    assert f'href="/backfills/{number}/limit/"' in page
    Flow.objects.update(frozen_at=None)
    reader.post(f"/backfills/{number}/cancel/", {"reason": "no need"})
    assert set(BackfillDate.objects.values_list("state", flat=True)) == {"cancelled"}
    assert "no need" in reader.get(f"/backfills/{number}/").content.decode()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"from_date": "yesterday"}, "from_date must be a date or time"),
        ({"from_date": "2026-02-01"}, "is after to"),
        ({"max_active_runs": "many"}, "max_active_runs: &#x27;many&#x27; is no whole number"),
        ({"reprocess": "some"}, "reprocess must be one of"),
        ({"reason": "", "begin": ""}, "Say why"),
    ],
)
def test_what_is_wrong_stands_beside_what_was_typed(
    reader: Client, change: dict[str, str], says: str
) -> None:
    make_flow(flow_id="sales")
    answer = reader.post("/flows/sales/backfill/", {**FORM, **change})
    page = answer.content.decode()
    assert answer.status_code == 400
    assert says in page
    assert 'value="2026-01-04"' in page
