"""``manage.py retention``."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.utils import timezone

from scheduler_app.models import Alert, Artifact, Audit, Exclusive, Incident, Run
from scheduler_app.transitions import retention
from tests import factories

if TYPE_CHECKING:
    from tests.integration.commands.conftest import Call

pytestmark = pytest.mark.django_db(transaction=True)


def ago(days: float) -> Any:
    return timezone.now() - timedelta(days=days)


def artifact(*, days: float, is_active: bool = False) -> Artifact:
    attempt = factories.make_attempt()
    assert attempt.ti_id is not None
    Run.objects.filter(tis=attempt.ti_id).update(
        is_active=is_active,
        state="running" if is_active else "success",
        ended_at=None if is_active else ago(days),
    )
    return Artifact.objects.create(
        attempt_id=attempt.pk,
        ti_id=attempt.ti_id,
        try_number=1,
        fence=1,
        key="k",
        kind="link",
        title="t",
        body={},
        at=ago(days),
    )


def incident(subject: str, *, resolved: float | None, alert: str | None = None) -> Incident:
    made = Incident.objects.create(
        kind="nobody_listens",
        subject=subject,
        message="m",
        raised_at=ago(200),
        resolved_at=None if resolved is None else ago(resolved),
    )
    if alert is not None:
        Alert.objects.create(
            incident=made,
            about="opened",
            number=1,
            notifier_key="n",
            notifier={},
            state=alert,
            due_at=ago(1),
            created_at=ago(200),
            ended_at=ago(199) if alert == "sent" else None,
        )
    return made


def test_what_is_old_and_needed_by_nothing_goes_and_the_rest_stays(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    for _ in range(3):
        artifact(days=100)
    kept = {artifact(days=10).pk, artifact(days=100, is_active=True).pk}
    live = factories.make_attempt(state="running", is_live=True)
    Exclusive.objects.create(key="held", attempt_id=live.pk, at=ago(100))
    Exclusive.objects.create(key="left", attempt_id=factories.uuid7(999), at=ago(100))
    incident("old", resolved=100, alert="sent")
    incident("open", resolved=None)
    incident("lately", resolved=10)
    incident("untold", resolved=100, alert="waiting")

    dry = call("retention", "--days", "90", "--dry-run", "--json").json
    counts = {"artifacts": 3, "exclusive-keys": 1, "incidents": 1}
    assert {one["kind"]: one["count"] for one in dry["removed"]} == counts
    assert (Artifact.objects.count(), Audit.objects.count()) == (5, 0)
    assert call("retention", "--days", "90").code == 1, "it needs a reason"
    assert Artifact.objects.count() == 5

    done = call("retention", "--days", "90", "--reason", "quarterly")
    assert done.code == 0
    assert "5 removed" in done.out
    assert set(Artifact.objects.values_list("pk", flat=True)) == kept
    assert list(Exclusive.objects.values_list("key", flat=True)) == ["held"]
    subjects = set(Incident.objects.values_list("subject", flat=True))
    assert subjects == {"open", "lately", "untold"}
    assert list(Alert.objects.values_list("incident__subject", flat=True)) == ["untold"]
    entry = Audit.objects.get()
    assert (entry.action, entry.reason) == ("retention", "quarterly")
    assert entry.after == {"days": 90, "removed": counts}
    again = call("retention", "--days", "90", "--reason", "again")
    assert "0 removed" in again.out
    assert Audit.objects.count() == 1


def test_one_kind_alone_and_bad_ages(call: Call) -> None:
    artifact(days=100)
    told = call("retention", "--days", "1", "--kind", "incidents", "--dry-run")
    assert "artifacts" not in told.out
    for days in ("0", "-3", "99999999"):
        refused = call("retention", "--days", days, "--dry-run")
        assert refused.code == 1
        assert "give 1 to 36,500" in refused.err
    for arguments in ((), ("--days", "soon"), ("--days", "9", "--kind", "runs")):
        assert call("retention", *arguments).code == 2
    assert Artifact.objects.count() == 1
