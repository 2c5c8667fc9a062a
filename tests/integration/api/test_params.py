"""Declared parameters where runs are asked for: the API, the page and the command line."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.test import Client

from scheduler_app.models import Flow, Run
from scheduler_app.operations.backfill import create_backfill
from scheduler_app.rules.definition import FlowDefinition, TaskDefinition, to_dict
from scheduler_app.rules.errors import InvalidInput
from tests import factories

if TYPE_CHECKING:
    from scheduler_app.models import FlowVersion

pytestmark = pytest.mark.django_db


@pytest.fixture
def flow() -> Flow:
    made = factories.make_flow(flow_id="loads")
    version: FlowVersion = factories.make_version(flow=made)
    definition = FlowDefinition(
        flow_id="loads",
        tasks=(TaskDefinition(task_id="load"),),
        params={"limit": 10},
        param_schemas={
            "limit": {"type": "integer", "minimum": 1},
            "day": {"type": "string", "format": "date", "description": "to load"},
        },
    )
    version.definition = to_dict(definition)
    version.save()
    made.current_version = version
    made.save()
    return made


def post(client: Client, flow: Flow, conf: Any) -> Any:
    address = f"/api/v1/flows/{flow.flow_id}/runs/"
    return client.post(address, {"conf": conf}, content_type="application/json")


def test_a_run_with_what_is_declared_is_created_and_keeps_the_rest(api: Client, flow: Flow) -> None:
    made = post(api, flow, {"day": "2026-01-31", "more": [1]})
    assert made.status_code == 201
    assert made.json()["conf"] == {"limit": 10, "day": "2026-01-31", "more": [1]}
    told = api.get("/api/v1/flows/loads/").json()
    assert told["param_schemas"]["limit"] == {"type": "integer", "minimum": 1}


def test_a_run_with_anything_else_is_refused_with_every_fault(api: Client, flow: Flow) -> None:
    refused = post(api, flow, {"limit": 0, "day": "tomorrow"})
    assert refused.status_code == 400
    told = refused.json()
    assert told["code"] == "invalid_input"
    assert told["faults"] == {
        "limit": "0 is less than the minimum of 1",
        "day": "'tomorrow' is not a 'date'",
    }
    assert "day: it is required, and not given" in post(api, flow, {}).json()["detail"]
    assert not Run.objects.exists()


def test_the_form_shows_what_is_asked_for_and_keeps_what_was_typed(api: Client, flow: Flow) -> None:
    del api
    reader = Client()
    reader.force_login(get_user_model().objects.get(username="ana"))
    form = reader.get(f"/flows/{flow.flow_id}/trigger/").content.decode()
    for words in ("integer, at least 1", "string, a date", "to load", "required"):
        assert words in form
    typed = '{"day": "soon"}'
    refused = reader.post(f"/flows/{flow.flow_id}/trigger/", {"conf": typed})
    assert refused.status_code == 400
    text = refused.content.decode()
    assert "is not a &#x27;date&#x27;" in text
    assert "&quot;soon&quot;" in text


def test_they_stand_in_the_order_of_the_flow_file(
    flow: Flow, api: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("warehouse", "day", "until", "b", "a")
    version = flow.current_version
    assert version is not None
    version.definition = to_dict(
        FlowDefinition(
            flow_id="loads",
            tasks=(TaskDefinition(task_id="load"),),
            params={name: 1 for name in names if name != "until"},
            param_schemas={"until": {"type": "string"}},
            param_order=names,
        )
    )
    version.save()
    reader = Client()
    reader.force_login(get_user_model().objects.get(username="ana"))
    form = reader.get(f"/flows/{flow.flow_id}/trigger/").content.decode()
    table, conf = form[: form.index("<textarea")], form[form.index("<textarea") :]
    shown = [table.index(f'mono">{name}<') for name in names]
    assert shown == sorted(shown)
    typed = [conf.index(f"&quot;{name}&quot;") for name in names if name != "until"]
    assert typed == sorted(typed)
    call_command("flows", "show", flow.flow_id)
    told = capsys.readouterr().out
    lines = [told.index(f"param {name} ") for name in names]
    assert lines == sorted(lines)
    of_airflow = api.get("/api/v2/dags/loads/details").json()["params"]
    assert [*of_airflow] == [name for name in names if name != "until"]


def test_the_command_line_shows_and_checks_them(
    flow: Flow, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("flows", "show", flow.flow_id)
    shown = capsys.readouterr().out
    assert "integer, at least 1; default 10" in shown
    assert "string, a date; required; to load" in shown
    with pytest.raises(SystemExit):
        call_command("flows", "trigger", flow.flow_id)
    assert "day: it is required, and not given" in capsys.readouterr().err


def test_a_backfill_is_asked_as_a_run_is(flow: Flow) -> None:
    day = datetime(2026, 1, 31, tzinfo=UTC)
    with pytest.raises(InvalidInput, match="day: it is required, and not given"):
        create_backfill(
            flow_id=flow.flow_id, from_date=day, to_date=day, actor="ana", reason="r", conf={}
        )
