"""Django's admin: every model, read-only, for superusers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.apps import apps
from django.contrib.admin import site
from django.contrib.admin.utils import quote
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from scheduler_app.admin.apps import LEFT_OUT
from scheduler_app.models import ApiToken, Run, Variable
from tests import factories

if TYPE_CHECKING:
    from django.db.models import Model

pytestmark = pytest.mark.django_db

MODELS = [model for model in apps.get_models() if model._meta.app_label not in LEFT_OUT]
OURS = [model for model in MODELS if model._meta.app_label == "scheduler_app"]


def address(model: type[Model], *rest: Any) -> str:
    parts = [model._meta.app_label, model._meta.model_name, *map(quote, rest)]
    return "/admin/" + "".join(f"{part}/" for part in parts)


@pytest.fixture
def root() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser(username="root"))
    return client


def fill() -> None:
    run = factories.make_run(conf={"deep": 1})
    ti = factories.make_task_instance(run=run, state="running")
    factories.make_attempt(
        ti=ti, state="ended", outcome="failed", try_number=1, filter_code="superseded_by_retry"
    )
    factories.make_event(attempt=factories.make_attempt(ti=ti, try_number=2))
    factories.make_ghost_attempt()
    factories.make_job()
    factories.make_job(ended_at=factories.at(5))
    factories.make_flow(removed_at=factories.at(7))
    factories.make_rest()


def test_every_model_is_there() -> None:
    assert reverse("admin:index") == "/admin/"
    assert set(MODELS) == set(site._registry)
    assert len(OURS) > 20


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model._meta.label)
def test_each_list_and_each_row_can_be_seen(root: Client, model: type[Any]) -> None:
    fill()
    assert root.get(address(model)).status_code == 200
    assert root.get(address(model) + "?filtered=1").status_code in {200, 302}
    for row in model.objects.all()[:25]:  # Django itself keeps some hundred permissions
        assert root.get(address(model, row.pk, "change")).status_code == 200


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model._meta.label)
def test_nothing_can_be_changed(root: Client, model: type[Any]) -> None:
    fill()
    before = model.objects.count()
    assert root.get(address(model, "add")).status_code == 403
    assert root.post(address(model, "add"), {}).status_code == 403
    row = model.objects.first()
    if row is not None:
        assert root.post(address(model, row.pk, "change"), {"state": "failed"}).status_code == 403
        for method in (root.get, root.post):
            assert method(address(model, row.pk, "delete")).status_code == 403
        delete = {"action": "delete_selected", "_selected_action": [row.pk], "post": "yes"}
        root.post(address(model), delete)
    assert model.objects.count() == before


@pytest.mark.parametrize("kind", ["nobody", "user", "staff"])
def test_others_than_superusers_see_nothing(kind: str) -> None:
    client = Client()
    if kind != "nobody":
        client.force_login(User.objects.create_user(username="u", is_staff=kind == "staff"))
    for path in ("/admin/", address(Run)):
        answer = client.get(path)
        assert (answer.status_code, answer["Location"].split("?")[0]) == (302, "/admin/login/")


def test_a_list_shows_current_rows_and_the_switch_with_counts(root: Client) -> None:
    fill()
    model = apps.get_model("scheduler_app", "attempt")
    for query, expected in (
        ("", 1),
        ("?filtered=1", 3),
        ("?filtered=only", 2),
        ("?filtered=ghost_no_record", 1),
    ):
        answer = root.get(address(model) + query)
        assert answer.context["cl"].result_count == expected
        text = answer.content.decode()
        for told in ("current (1)", "all (3)", "filtered (2)", "ghost_no_record (1)"):
            assert told in text
    assert "was issued" in root.get(address(model) + "?filtered=only").content.decode()


def test_removed_flows_and_gone_processes_are_behind_the_switch(root: Client) -> None:
    fill()
    for name, reason in (("flow", "No file has defined it"), ("job", "ended at")):
        model = apps.get_model("scheduler_app", name)
        assert reason not in root.get(address(model)).content.decode()
        assert reason in root.get(address(model) + "?filtered=only").content.decode()


def test_a_ghost_without_parents_can_be_seen(root: Client) -> None:
    ghost = factories.make_ghost_attempt()
    model = apps.get_model("scheduler_app", "attempt")
    page = root.get(address(model, ghost.pk, "change"))
    assert str(ghost.pk) in page.content.decode()


def test_no_page_shows_a_secret(root: Client) -> None:
    user = User.objects.get()
    user.set_password("a long password")
    user.save()
    root.force_login(user)
    Variable.objects.create(
        key="k", value="hidden-value", is_secret=True, updated_at=factories.at(0)
    )
    ApiToken.objects.create(
        user=user,
        digest="d" * 64,
        stamp="s" * 64,
        created_at=factories.at(0),
        expires_at=factories.at(9),
    )
    for model in (User, Variable, ApiToken):
        for row in model._default_manager.all():
            for path in (address(model), address(model, row.pk, "change")):
                text = root.get(path).content.decode()
                for secret in (user.password, "hidden-value", "d" * 64, "s" * 64):
                    assert secret not in text


def test_a_large_table_is_counted_up_to_a_limit(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler_app.admin.read_only.COUNTED_MAX", 2)
    for _ in range(3):
        factories.make_run()
    assert root.get(address(Run)).context["cl"].result_count == 2


@pytest.mark.parametrize(("name", "large"), [("bundle", "archive"), ("attempt", "result")])
def test_a_list_does_not_read_what_may_be_large(root: Client, name: str, large: str) -> None:
    fill()
    with CaptureQueriesContext(connection) as captured:
        assert root.get(address(apps.get_model("scheduler_app", name))).status_code == 200
    listed = [each["sql"] for each in captured if f'FROM "{name}"' in each["sql"]]
    assert listed
    assert not [sql for sql in listed if f'"{name}"."{large}"' in sql]


def test_an_act_of_a_row_opens_its_sheet(root: Client) -> None:
    run, other = factories.make_run(), factories.make_run()
    factories.make_task_instance(run=run, state="scheduled")
    listed = root.get(address(Run)).content.decode()
    for verb in ("freeze", "thaw", "clear", "retry", "mark", "terminate"):
        assert f'value="{verb}"' in listed
    one = root.post(address(Run), {"action": "freeze", "_selected_action": [run.pk]})
    assert one.headers["Location"].startswith(f"/runs/{run.pk}/freeze/?next=%2Fadmin%2F")
    assert "will be held" in root.get(one.headers["Location"]).content.decode()
    for verb in ("freeze", "clear", "mark"):
        both = {"action": verb, "_selected_action": [run.pk, other.pk]}
        sheet = root.post(address(Run), both).headers["Location"]
        assert sheet.startswith(f"/runs/{verb}/?next=%2Fadmin%2F")
        assert sheet.endswith(f"&id={run.pk}&id={other.pk}")
    both = {"action": "thaw", "_selected_action": [run.pk, other.pk]}
    assert "one row at a time" in root.post(address(Run), both, follow=True).content.decode()
    assert 'name="action"' not in root.get(address(Variable)).content.decode()
