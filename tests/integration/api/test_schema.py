"""The description of the API fits the API."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from scheduler_app.api import urls
from scheduler_app.api.reading import NounList

if TYPE_CHECKING:
    from django.test import Client

pytestmark = pytest.mark.django_db


def test_every_address_and_every_filter_is_described(
    api: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = api.get("/api/v1/schema/")
    assert answer.status_code == 200
    described = yaml.safe_load(answer.content)
    assert capsys.readouterr().err == "", "drf-spectacular has nothing to warn of"
    assert {"/auth/token", "/api/v1/flows/{flow_id}/runs/{run_id}/"} <= set(described["paths"])
    for pattern in urls.V1:
        view = getattr(getattr(pattern, "callback", None), "view_class", None)
        if view is None or not issubclass(view, NounList):
            continue
        address = "/api/v1/" + str(pattern.pattern).replace("<str:", "{").replace(">", "}")
        operation = described["paths"][address]["get"]
        told = {parameter["name"] for parameter in operation["parameters"]}
        path = {name for name in ("flow_id",) if f"{{{name}}}" in address}
        shared = {"filtered", "why", "limit", "cursor", "order", "count"}
        assert told == set(view.asked.parameters()) | shared | path
        answers = operation["responses"]["200"]["content"]["application/json"]["schema"]
        assert answers["$ref"].endswith("Page")
    post = described["paths"]["/api/v1/flows/{flow_id}/runs/"]["post"]
    assert sorted(post["responses"]) == ["201", "4XX"]


def test_the_description_needs_a_login(stranger: Client) -> None:
    assert stranger.get("/api/v1/schema/").status_code == 401
