"""Connections: where outside systems are, their changes, and sheets that make, change and delete them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from django.urls import reverse

from dashboard import acts, answer, listing
from dashboard.typed import whole_number
from scheduler_app.operations.connections import delete_connection, set_connection
from scheduler_app.queries import audit, connections
from scheduler_app.queries.filters import AuditFilter, ConnectionFilter
from scheduler_app.rules.connections import MASK, extra_of
from scheduler_app.rules.errors import InvalidInput

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from scheduler_app.queries.audit import AuditRow
    from scheduler_app.queries.connections import ConnectionRow

FIELDS: Final = ("q", "conn_type", "host", "updated_by", "updated_at_gte")
TOPICS: Final = ("connections",)
TEXTS: Final = (("host", "Host"), ("login", "Login"), ("schema", "Schema or database"))
PASSWORD_STAYS: Final = (("no", "It stays, unless another is typed"), ("yes", "It is taken away"))


@answer.page
def connection_list(request: HttpRequest) -> HttpResponse:
    """Every connection, without what opens it."""
    reading = answer.begin(request)
    found = listing.read(
        request, reading, ConnectionFilter, connections.page, noun="connections", fields=FIELDS
    )
    return answer.answer(
        request, "dashboard/connection_list.html", reading, {"list": found}, topics=TOPICS
    )


@answer.page
def connection_detail(request: HttpRequest, connection_id: str) -> HttpResponse:
    """One connection with its changes; of one that is gone, the changes alone."""
    reading = answer.begin(request)
    changes = listing.read(
        request,
        reading,
        AuditFilter,
        audit.page,
        noun="changes of the connection",
        object_kind=("connection",),
        object_id=(connection_id,),
    )
    rows = connections.page(ConnectionFilter(connection_id=(connection_id,)), reading.scope).rows
    if not rows and not changes.counts.total:
        connections.one(reading.scope, connection_id)
    context = {
        "connection_id": connection_id,
        "connection": rows[0] if rows else None,
        "list": changes,
        "changes": [(row, _differences(row)) for row in changes.rows],
    }
    return answer.answer(
        request, "dashboard/connection_detail.html", reading, context, topics=TOPICS
    )


@answer.sheet
def connection_new(request: HttpRequest) -> HttpResponse:
    """What a new connection will be; posted with a reason, it is there."""
    reading = answer.begin(request)

    def sheet() -> acts.Sheet:
        name = acts.Field(
            name="connection_id",
            label="Id",
            value=_typed(request, "connection_id"),
            hint="as warehouse or s3.backups",
        )
        return acts.Sheet(
            title="New connection",
            button="Create it",
            effects=["Tasks and callbacks of every flow can read it, with what opens it."],
            fields=(name, *_fields(request, None)),
        )

    def act(reason: str) -> str:
        connection_id = _typed(request, "connection_id")
        set_connection(
            connection_id=connection_id,
            actor=request.user.get_username(),
            reason=reason,
            must_be_new=True,
            **_said(request),
        )
        return f"Connection {connection_id} is there."

    return acts.answer_sheet(
        request, reading, sheet=sheet, act=act, back=reverse("dashboard:connection_list")
    )


@answer.sheet
def connection_edit(request: HttpRequest, connection_id: str) -> HttpResponse:
    """What is changed; posted with a reason, it is, unless somebody was faster."""
    reading = answer.begin(request)
    row = connections.one(reading.scope, connection_id)

    def sheet() -> acts.Sheet:
        version = acts.Field(
            name="version",
            label="Version that you saw",
            value=_typed(request, "version", str(row.version)),
            hint="refused if it has moved since",
        )
        return acts.Sheet(
            title=f"Change connection {connection_id}",
            button="Change it",
            effects=[
                "Tasks that read it from now on find it so; what they have read already stays.",
                f"What is {MASK} stays as it is.",
            ],
            fields=(*_fields(request, row), version),
        )

    def act(reason: str) -> str:
        set_connection(
            connection_id=connection_id,
            actor=request.user.get_username(),
            reason=reason,
            must_exist=True,
            expected_version=whole_number("version", _typed(request, "version")),
            **_said(request),
        )
        return f"Connection {connection_id} is changed."

    return acts.answer_sheet(
        request,
        reading,
        sheet=sheet,
        act=act,
        back=reverse("dashboard:connection_detail", args=[connection_id]),
    )


@answer.sheet
def connection_delete(request: HttpRequest, connection_id: str) -> HttpResponse:
    """What deleting means; posted with a reason, it is gone."""
    reading = answer.begin(request)
    row = connections.one(reading.scope, connection_id)

    def sheet() -> acts.Sheet:
        return acts.Sheet(
            title=f"Delete connection {row.connection_id}",
            button="Delete it",
            effects=[
                "Tasks that read it from now on fail: there is no connection of this id.",
                "Its password and its extras are gone for good.",
            ],
        )

    def act(reason: str) -> str:
        delete_connection(
            connection_id=row.connection_id, actor=request.user.get_username(), reason=reason
        )
        return f"Connection {row.connection_id} is deleted."

    return acts.answer_sheet(
        request, reading, sheet=sheet, act=act, back=reverse("dashboard:connection_list")
    )


def _differences(row: AuditRow) -> list[str]:
    """What became other by the act, in words; nothing of what is sealed."""
    before, after = row.before or {}, row.after or {}
    told = []
    for name in ("conn_type", *(text for text, _ in TEXTS), "port"):
        old, new = before.get(name), after.get(name)
        if old != new and row.after is not None:
            told.append(f"{name} {old} → {new}" if old not in (None, "") else f"{name} {new}")
    if after.get("has_new_password"):
        told.append("new password" if after.get("has_password") else "password taken away")
    if keys := after.get("changed_extras"):
        told.append(f"extras {', '.join(keys)}")
    return told


def _fields(request: HttpRequest, row: ConnectionRow | None) -> tuple[acts.Field, ...]:
    masked = dict.fromkeys(row.extra_keys, MASK) if row else {}
    extra = json.dumps(masked, ensure_ascii=False, indent=2) if masked else ""
    port = "" if row is None or row.port is None else str(row.port)
    has_password = row is not None and row.has_password
    removal = (
        acts.Field(
            name="drop_password",
            label="Its password",
            value=_typed(request, "drop_password", "no"),
            choices=PASSWORD_STAYS,
        ),
    )
    return (
        acts.Field(
            name="conn_type",
            label="Type",
            value=_typed(request, "conn_type", row.conn_type if row else ""),
            hint="as postgres, http or s3",
        ),
        *(
            acts.Field(
                name=name,
                label=label,
                value=_typed(request, name, getattr(row, name) if row else ""),
            )
            for name, label in TEXTS
        ),
        acts.Field(name="port", label="Port", value=_typed(request, "port", port)),
        acts.Field(
            name="password",
            label="New password" if has_password else "Password",
            hint="sealed, and shown to nobody; empty: it stays as it is",
            is_secret=True,
        ),
        *(removal if has_password else ()),
        acts.Field(
            name="extra",
            label="Extras, a JSON object",
            value=_typed(request, "extra", extra),
            hint='as {"sslmode": "require"}; what they say is sealed, what they are called is not',
            rows=4,
        ),
        acts.Field(
            name="description",
            label="What it is for",
            value=_typed(request, "description", row.description if row else ""),
            rows=2,
        ),
    )


def _said(request: HttpRequest) -> dict[str, Any]:
    """What the form says, as ``set_connection`` takes it. Raises ``InvalidInput``."""
    port = _typed(request, "port").strip()
    password = _typed(request, "password")
    is_dropped = _typed(request, "drop_password") == "yes"
    if password and is_dropped:
        message = "Type a new password, or take the old one away: not both."
        raise InvalidInput(message, field="password")
    said: dict[str, Any] = {
        "conn_type": _typed(request, "conn_type"),
        **{name: _typed(request, name) for name, _ in TEXTS},
        "port": whole_number("port", port) if port else None,
        "extra": extra_of(_typed(request, "extra")),
        "description": _typed(request, "description"),
    }
    if password or is_dropped:
        said["password"] = password
    return said


def _typed(request: HttpRequest, name: str, otherwise: str = "") -> str:
    return str(request.POST.get(name, otherwise))
