"""Variables: what flows share, its history, and sheets that change it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from django.urls import reverse

from dashboard import acts, answer, listing
from scheduler_app.operations.variables import UNSET, delete_variable, set_variable
from scheduler_app.queries import variable_changes, variables
from scheduler_app.queries.filters import VariableChangeFilter, VariableFilter
from scheduler_app.rules.errors import InvalidInput

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from scheduler_app.queries.variables import VariableRow

FIELDS: Final = ("q", "secret", "updated_by", "updated_at_gte")
TOPICS: Final = ("variables",)
SECRECY: Final = (("no", "No: it is shown"), ("yes", "Yes: sealed, and masked everywhere"))


@answer.page
def variable_list(request: HttpRequest) -> HttpResponse:
    """Every variable, secrets masked."""
    reading = answer.begin(request)
    found = listing.read(
        request, reading, VariableFilter, variables.page, noun="variables", fields=FIELDS
    )
    return answer.answer(
        request, "dashboard/variable_list.html", reading, {"list": found}, topics=TOPICS
    )


@answer.page
def variable_detail(request: HttpRequest, key: str) -> HttpResponse:
    """One variable with its history; of one that is gone, the history alone."""
    reading = answer.begin(request)
    history = listing.read(
        request,
        reading,
        VariableChangeFilter,
        variable_changes.page,
        noun="variable changes",
        key=(key,),
    )
    rows = variables.page(VariableFilter(key=(key,)), reading.scope).rows
    if not rows and not history.counts.total:
        variables.one(reading.scope, key)
    context = {"key": key, "variable": rows[0] if rows else None, "list": history}
    return answer.answer(request, "dashboard/variable_detail.html", reading, context, topics=TOPICS)


@answer.sheet
def variable_new(request: HttpRequest) -> HttpResponse:
    """What a new variable will be; posted with a reason, it is there."""
    reading = answer.begin(request)

    def sheet() -> acts.Sheet:
        key = acts.Field(
            name="key", label="Key", value=_typed(request, "key"), hint="as db_limit or team/limit"
        )
        return acts.Sheet(
            title="New variable",
            button="Create it",
            effects=["Tasks and callbacks of every flow can read and change it."],
            fields=(key, *_fields(request, None)),
        )

    def act(reason: str) -> str:
        key = _typed(request, "key")
        set_variable(
            key=key,
            actor=request.user.get_username(),
            reason=reason,
            must_be_new=True,
            **_changes(request, None),
        )
        return f"Variable {key} is there."

    return acts.answer_sheet(
        request, reading, sheet=sheet, act=act, back=reverse("dashboard:variable_list")
    )


@answer.sheet
def variable_edit(request: HttpRequest, key: str) -> HttpResponse:
    """What is changed; posted with a reason, it is, unless somebody was faster."""
    reading = answer.begin(request)
    row = variables.one(reading.scope, key)

    def sheet() -> acts.Sheet:
        effects = ["Tasks that read it from now on find the new value."]
        if row.is_secret:
            effects.append("Its value is secret: leave the field empty to keep it.")
        version = acts.Field(
            name="version",
            label="Version that you saw",
            value=_typed(request, "version", str(row.version)),
            hint="refused if it has moved since",
        )
        return acts.Sheet(
            title=f"Change variable {key}",
            button="Change it",
            effects=effects,
            fields=(*_fields(request, row), version),
        )

    def act(reason: str) -> str:
        version = _typed(request, "version")
        if not version.isdecimal():
            raise InvalidInput("The version is a whole number.", field="version")
        set_variable(
            key=key,
            actor=request.user.get_username(),
            reason=reason,
            must_exist=True,
            expected_version=int(version),
            **_changes(request, row),
        )
        return f"Variable {key} is changed."

    return acts.answer_sheet(
        request,
        reading,
        sheet=sheet,
        act=act,
        back=reverse("dashboard:variable_detail", args=[key]),
    )


@answer.sheet
def variable_delete(request: HttpRequest, key: str) -> HttpResponse:
    """What deleting means; posted with a reason, it is gone."""
    reading = answer.begin(request)
    row = variables.one(reading.scope, key)

    def sheet() -> acts.Sheet:
        return acts.Sheet(
            title=f"Delete variable {row.key}",
            button="Delete it",
            effects=[
                "Tasks that read it without a default fail from now on.",
                "Its history stays; the value of a secret is gone for good.",
            ],
        )

    def act(reason: str) -> str:
        delete_variable(key=row.key, actor=request.user.get_username(), reason=reason)
        return f"Variable {row.key} is deleted."

    return acts.answer_sheet(
        request, reading, sheet=sheet, act=act, back=reverse("dashboard:variable_list")
    )


def _fields(request: HttpRequest, row: VariableRow | None) -> tuple[acts.Field, ...]:
    value = (
        "" if row is None or row.is_secret else json.dumps(row.value, ensure_ascii=False, indent=2)
    )
    is_secret = "yes" if row is not None and row.is_secret else "no"
    return (
        acts.Field(
            name="value",
            label="Value, as JSON",
            value=_typed(request, "value", value),
            hint='a number, "a text" in quotes, a list or an object',
            rows=6,
        ),
        acts.Field(
            name="description",
            label="What it is for",
            value=_typed(request, "description", row.description if row else ""),
            rows=2,
        ),
        acts.Field(
            name="secret",
            label="Secret",
            value=_typed(request, "secret", is_secret),
            choices=SECRECY,
        ),
    )


def _changes(request: HttpRequest, row: VariableRow | None) -> dict[str, Any]:
    text = _typed(request, "value").strip()
    value: object = UNSET
    if text or row is None or not row.is_secret:
        try:
            value = json.loads(text)
        except ValueError as error:
            message = f'The value is no JSON ({error}). A text needs quotes: "yes".'
            raise InvalidInput(message, field="value") from None
    return {
        "value": value,
        "description": _typed(request, "description"),
        "is_secret": _typed(request, "secret") == "yes",
    }


def _typed(request: HttpRequest, name: str, otherwise: str = "") -> str:
    return str(request.POST.get(name, otherwise))
