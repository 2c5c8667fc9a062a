"""Evidence: everything that proves what happened to one subject, read in one snapshot.

Current and filtered records alike, with their reasons; what was said and how it was judged; the
changes of leader around it; who did what; logs. A manifest vouches for every byte.
"""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Q

from scheduler_app.models import Installation, Reviewed, TakeOver
from scheduler_app.queries import (
    attempts,
    audit,
    executor_events,
    exports,
    flow_versions,
    ghosts,
    inquiries,
    jobs,
    lease_events,
    lens,
    logs,
    run_attempts,
    runs,
    take_over_items,
    take_overs,
    task_instances,
    triggers,
)
from scheduler_app.rules import errors
from scheduler_app.rules import evidence as rules
from scheduler_app.rules.evidence_report import picture, report
from scheduler_app.rules.leadership import NEAR

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from scheduler_app.queries.scope import Scope

ROWS_MAX: Final = 50_000  # of each file
LOG_END_BYTES: Final = 1024 * 1024  # of a long log its first and its last part
LOG_BYTES_MAX: Final = 64 * 1024 * 1024  # of all logs together


class Kind(StrEnum):
    """What evidence can be about."""

    RUN = "run"
    TASK_INSTANCE = "task_instance"
    ATTEMPT = "attempt"
    GHOST = "ghost"
    TAKE_OVER = "take_over"


@dataclass(slots=True, kw_only=True)
class Evidence:
    """What was read; ``rows`` by the name of their file."""

    kind: Kind
    subject_id: str
    at: datetime  # of the snapshot, by the database's clock
    snapshot: str
    database: str
    rows: dict[str, list[dict[str, object]]] = field(default_factory=dict)
    logs: dict[str, bytes] = field(default_factory=dict)
    omitted: list[str] = field(default_factory=list)  # sentences: what is not in it, and why

    def files(self, *, with_tables: bool) -> dict[str, bytes]:
        """Every file by its name in the archive, but for the manifest."""
        made = {f"{name}.ndjson": rules.lines(rows) for name, rows in self.rows.items()}
        if with_tables:
            made |= {
                f"tables/{name}.csv": rules.table(rows) for name, rows in self.rows.items() if rows
            }
            made |= {"report.html": self._report(), "timeline.svg": picture(self.rows)}
        return made | {f"logs/{name}.log": data for name, data in self.logs.items()}

    def _report(self) -> bytes:
        return report(
            subject=f"{self.kind.value.replace('_', ' ')} {self.subject_id}",
            facts=(
                ("Read at", str(exports.text_of(self.at))),
                ("Snapshot", self.snapshot),
                ("Database", self.database),
                ("Logs", str(len(self.logs))),
            ),
            rows=self.rows,
            omitted=self.omitted,
        )

    def manifest(self, files: Mapping[str, bytes], *, exported_by: str) -> dict[str, Any]:
        """What the files are, who took them when, and the digest of each."""
        entries = {name: rules.entry(data) for name, data in sorted(files.items())}
        return {
            "format": rules.FORMAT,
            "product": "daylight",
            "subject": {"kind": self.kind.value, "id": self.subject_id},
            "exported_by": exported_by,
            "exported_at": exports.text_of(self.at),
            "snapshot": self.snapshot,
            "database": self.database,
            "counts": {
                name: {
                    "shown": sum(1 for row in rows if not row.get("filter_code")),
                    "filtered": sum(1 for row in rows if row.get("filter_code")),
                    "total": len(rows),
                }
                for name, rows in self.rows.items()
            },
            "omitted": list(self.omitted),
            "files": entries,
            "content_sha256": rules.whole_digest(entries),
        }


def zipped(evidence: Evidence, *, exported_by: str) -> bytes:
    """The archive: NDJSON and CSV of everything, a report, a picture, logs, and the manifest first."""
    files = evidence.files(with_tables=True)
    manifest = evidence.manifest(files, exported_by=exported_by)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(rules.MANIFEST, json.dumps(manifest, indent=1, ensure_ascii=False))
        for name, data in sorted(files.items()):
            archive.writestr(name, data)
    return made.getvalue()


def document(evidence: Evidence, *, exported_by: str) -> bytes:
    """One JSON document: the manifest, and the rows and logs that it vouches for."""
    manifest = evidence.manifest(evidence.files(with_tables=False), exported_by=exported_by)
    whole = {
        "manifest": manifest,
        "rows": evidence.rows,
        # Logs are bytes: latin-1 keeps each of them.
        "logs": {name: data.decode("latin-1") for name, data in evidence.logs.items()},
    }
    return json.dumps(whole, ensure_ascii=False, indent=1).encode()


FORMATS: Final = {"zip": ("application/zip", zipped), "json": ("application/json", document)}


def faults_of(data: bytes) -> list[str]:
    """Why this file, of either format, is not what it was when it was taken; empty if it is.

    Raises ``InvalidInput`` for what is no evidence.
    """
    try:
        if zipfile.is_zipfile(io.BytesIO(data)):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                files = {name: archive.read(name) for name in archive.namelist()}
            manifest = json.loads(files.pop(rules.MANIFEST))
        else:
            whole = json.loads(data)
            manifest = whole["manifest"]
            files = {f"{name}.ndjson": rules.lines(rows) for name, rows in whole["rows"].items()}
            files |= {
                f"logs/{name}.log": text.encode("latin-1") for name, text in whole["logs"].items()
            }
        return rules.faults(manifest, files)
    except (ValueError, KeyError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise errors.InvalidInput(
            f"This is no evidence of this product, or its manifest is gone ({error})."
        ) from None


def gather(scope: Scope, kind: Kind, subject_id: int | UUID, *, with_logs: bool = True) -> Evidence:
    """Everything about the subject that the reader may see, from one snapshot.

    Raises ``NotFound``, and ``InvalidInput`` where there are more rows than one file may have.
    """
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            cursor.execute(
                "SELECT clock_timestamp(), pg_current_snapshot()::text,"
                " (SELECT system_identifier::text FROM pg_control_system())"
            )
            at, snapshot, system = cursor.fetchone()
        installation = Installation.objects.values_list("id", flat=True).first()
        found = Evidence(
            kind=kind,
            subject_id=str(subject_id),
            at=at,
            snapshot=snapshot,
            database=f"{system}/{installation}",
        )
        _Gathering(scope, found).of(kind, subject_id)
        if with_logs:
            _read_logs(scope, found)
        else:
            found.omitted.append("Logs were left out, as asked.")
    return found


class _Gathering:
    """The rows of one subject, file by file: what belongs to it, and what lies around it."""

    def __init__(self, scope: Scope, found: Evidence) -> None:
        self._scope = scope
        self._found = found

    def of(self, kind: Kind, subject_id: int | UUID) -> None:
        """Every file is read."""
        match kind:
            case Kind.RUN:
                run = runs.one(self._scope, int(str(subject_id)))
                self._executions(Q(run_id=run.id), Q(id=run.id))
                self._around({run.shard})
            case Kind.TASK_INSTANCE:
                ti = task_instances.one(self._scope, int(str(subject_id)))
                self._executions(Q(ti_id=ti.id), Q(id=ti.run), task_instance=Q(id=ti.id))
                self._around({ti.shard})
            case Kind.ATTEMPT:
                attempt = attempts.one(self._scope, UUID(str(subject_id)))
                self._of_attempt(attempt.id, ti=attempt.ti, run=attempt.run)
                self._around({attempt.shard})
            case Kind.GHOST:
                ghost = ghosts.one(self._scope, int(str(subject_id)))
                self._of_attempt(ghost.attempt_id, ti=ghost.ti, run=ghost.run, ghost=ghost.id)
                self._around({ghost.shard})
            case Kind.TAKE_OVER:
                self._of_take_over(int(str(subject_id)))
        self._jobs()
        self._audit()
        self._reviewed()
        self._found.rows["timeline"] = _timeline(self._found.rows)

    def _executions(self, owned: Q, run: Q, *, task_instance: Q | None = None) -> None:
        self._read("runs", runs.NOUN, run)
        run_ids = self._values("runs", "id")
        of_run = Q(run_id__in=run_ids)
        self._read("run_attempts", run_attempts.NOUN, of_run)
        versions = self._values("runs", "version_id")
        self._read("flow_versions", flow_versions.DETAIL, Q(id__in=versions))
        self._read("task_instances", task_instances.NOUN, task_instance or of_run)
        self._read("attempts", attempts.DETAIL, owned)
        self._read("executor_events", executor_events.NOUN, owned)
        self._read("triggers", triggers.NOUN, Q(ti_id__in=self._values("task_instances", "id")))
        self._read("ghosts", ghosts.NOUN, owned)

    def _of_attempt(
        self, attempt_id: UUID | None, *, ti: int | None, run: int | None, ghost: int | None = None
    ) -> None:
        """With the other attempts of its task: which one won is part of the proof."""
        owned = Q(ti_id=ti) if ti is not None else Q(pk__in=())
        of_events = owned | Q(attempt_id=attempt_id) if attempt_id else owned
        self._executions(
            owned,
            Q(id=run) if run is not None else Q(pk__in=()),
            task_instance=(Q(id=ti) if ti is not None else Q(pk__in=())),
        )
        of_attempt = owned | Q(id=attempt_id) if attempt_id else owned
        self._read("attempts", attempts.DETAIL, of_attempt)
        self._read("executor_events", executor_events.NOUN, of_events)
        of_ghost = of_events | Q(id=ghost) if ghost is not None else of_events
        self._read("ghosts", ghosts.NOUN, of_ghost)

    def _of_take_over(self, number: int) -> None:
        taken = take_overs.one(self._scope, number)
        self._read("take_over_items", take_over_items.NOUN, Q(take_over_id=number))
        named = self._values("take_over_items", "attempt_id")
        following = (
            TakeOver.objects.filter(shard=taken.shard, new_token__gt=taken.new_token)
            .order_by("new_token")
            .values_list("started_at", flat=True)
            .first()
        )
        since = taken.old_renewed_at or taken.acquired_at or taken.started_at
        until = following or self._found.at
        in_term = Q(shard=taken.shard, filter_code__isnull=False, filtered_at__gte=since)
        in_term &= Q(filtered_at__lte=until)
        self._read("attempts", attempts.DETAIL, Q(id__in=named) | in_term)
        attempt_ids = self._values("attempts", "id")
        self._read("executor_events", executor_events.NOUN, Q(attempt_id__in=attempt_ids) | in_term)
        run_ids = self._values("attempts", "run") | self._values("executor_events", "run")
        self._read("runs", runs.NOUN, Q(id__in=run_ids))
        tis = self._values("attempts", "ti")
        self._read("task_instances", task_instances.NOUN, Q(id__in=tis))
        self._read(
            "ghosts",
            ghosts.NOUN,
            Q(attempt_id__in=attempt_ids)
            | (Q(shard=taken.shard) | Q(shard__isnull=True))
            & Q(first_seen_at__gte=since, first_seen_at__lte=until),
        )
        self._around({taken.shard}, since=since, until=until)

    def _around(
        self,
        shards: Collection[int | None],
        *,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> None:
        """Changes of the shards' leaders while it went on, and a minute before and after."""
        began, ended = _span(self._found.rows)
        since, until = since or began, until or ended or self._found.at
        known = [shard for shard in shards if shard is not None]
        near = Q(shard__in=known)
        if not known:
            self._found.omitted.append("No shard is known, so that no lease events are told.")
        if since is not None:
            near &= Q(at__gte=since - NEAR, at__lte=until + NEAR)
        self._read("lease_events", lease_events.NOUN, near)
        tokens = self._values("lease_events", "token")
        taken = Q(shard__in=known, new_token__in=tokens)
        self._read("take_overs", take_overs.NOUN, taken)
        ids = self._values("take_overs", "id")
        if "take_over_items" not in self._found.rows:
            of_these = Q(attempt_id__in=self._values("attempts", "id"))
            self._read("take_over_items", take_over_items.NOUN, of_these & Q(take_over_id__in=ids))
        asked = self._values("take_overs", "ask_id") - {None}
        self._read("inquiries", inquiries.NOUN, Q(ask_id__in=asked))

    def _jobs(self) -> None:
        """Every process that took part: its host, its clock, its end."""
        rows = self._found.rows
        named = {
            value
            for name in rows
            for row in rows[name]
            for column in ("worker_job_id", "holder", "old_holder", "triggerer_job_id")
            if (value := row.get(column))
        }
        self._read("jobs", jobs.NOUN, Q(id__in=named))

    def _audit(self) -> None:
        """What people did to any of these records, and to their flows, shards and processes."""
        about = Q()
        for name, kinds, column in (
            ("runs", ("run",), "id"),
            ("runs", ("flow",), "flow_id"),
            ("task_instances", ("task_instance",), "id"),
            ("attempts", ("attempt",), "id"),
            ("ghosts", ("ghost",), "id"),
            ("executor_events", ("executor_event",), "id"),
            ("lease_events", ("shard",), "shard"),
            ("jobs", ("job",), "id"),
        ):
            ids = {str(value) for value in self._values(name, column) if value is not None}
            about |= Q(object_kind__in=kinds, object_id__in=ids)
        self._read("audit", audit.NOUN, about)

    def _reviewed(self) -> None:
        keys = {
            f"{noun}:{value}"
            for name, noun in (
                ("runs", "run"),
                ("task_instances", "task_instance"),
                ("attempts", "attempt"),
                ("executor_events", "executor_event"),
                ("ghosts", "ghost"),
            )
            for value in self._values(name, "id")
        }
        marks = Reviewed.objects.filter(key__in=keys).order_by("key")
        self._found.rows["reviewed"] = [
            {"key": one.key, "by": one.actor, "at": exports.text_of(one.at), "note": one.note}
            for one in marks
        ]

    def _values(self, name: str, column: str) -> set[Any]:
        return {row.get(column) for row in self._found.rows.get(name, ())} - {None}

    def _read(self, name: str, noun: lens.Noun[Any], kept: Q) -> None:
        rows = noun.rows(self._scope).filter(kept).order_by(noun.key)
        values = list(rows.values_list(*noun.sources())[: ROWS_MAX + 1])
        if len(values) > ROWS_MAX:
            raise errors.InvalidInput(
                f"There are more than {ROWS_MAX} {name.replace('_', ' ')}: take the evidence of a"
                " task instance or an attempt, or export the lists."
            )
        self._found.rows[name] = [exports.plain(noun, noun.row_of(each)) for each in values]


def _span(rows: Mapping[str, list[dict[str, object]]]) -> tuple[datetime | None, datetime | None]:
    """From the first to the last moment of what was executed; the end is null while it goes on."""
    began = [
        datetime.fromisoformat(str(row[column]))
        for name, columns in (
            ("attempts", ("issued_at", "started_at")),
            ("ghosts", ("first_seen_at",)),
        )
        for row in rows.get(name, ())
        for column in columns
        if row.get(column)
    ]
    ended = [
        datetime.fromisoformat(str(row[column])) if row.get(column) else None
        for name, column in (("attempts", "ended_at"), ("ghosts", "ended_at"))
        for row in rows.get(name, ())
    ]
    told = [datetime.fromisoformat(str(r["received_at"])) for r in rows.get("executor_events", ())]
    open_end = not ended or any(one is None for one in ended)
    last = None if open_end else max([one for one in ended if one is not None] + told)
    return (min(began + told) if began or told else None), last


def _read_logs(scope: Scope, found: Evidence) -> None:
    left = LOG_BYTES_MAX
    for row in found.rows.get("attempts", ()):
        attempt_id = UUID(str(row["id"]))
        first = logs.read_log(scope, attempt_id, limit=LOG_END_BYTES)
        data = first.data
        if first.size > 2 * LOG_END_BYTES:
            last = logs.read_log(scope, attempt_id, start=-LOG_END_BYTES, limit=LOG_END_BYTES)
            between = first.size - 2 * LOG_END_BYTES
            data += f"\n… {between} bytes are left out …\n".encode() + last.data
            found.omitted.append(
                f"Of the log of attempt {attempt_id}, {between} bytes are left out."
            )
        elif first.size > LOG_END_BYTES:
            data += logs.read_log(scope, attempt_id, start=LOG_END_BYTES, limit=LOG_END_BYTES).data
        if not data:
            continue
        if len(data) > left:
            found.omitted.append(f"The log of attempt {attempt_id} is left out: too many bytes.")
            continue
        left -= len(data)
        found.logs[str(attempt_id)] = data


# File, the column of the moment, what happened, and where who, token, verdict and words stand.
_MOMENTS: Final = (
    ("attempts", "issued_at", "attempt issued"),
    ("attempts", "published_at", "attempt published"),
    ("attempts", "started_at", "attempt claimed"),
    ("attempts", "ended_at", "attempt ended"),
    ("executor_events", "received_at", "executor event"),
    ("triggers", "created_at", "trigger begins to wait"),
    ("triggers", "ended_at", "trigger ended"),
    ("lease_events", "at", "lease event"),
    ("ghosts", "first_seen_at", "ghost first seen"),
    ("ghosts", "ended_at", "ghost over"),
    ("audit", "at", "operator action"),
    ("reviewed", "at", "marked as reviewed"),
)


def _timeline(rows: Mapping[str, list[dict[str, object]]]) -> list[dict[str, object]]:
    """Every moment of every file in one order, with what was compared and by which rule."""
    moments = [
        _moment(name, row, str(row[column]), what)
        for name, column, what in _MOMENTS
        for row in rows.get(name, ())
        if row.get(column)
    ]
    moments.sort(key=lambda one: (datetime.fromisoformat(str(one["at"])), str(one["what"])))
    return [{"no": number, **one} for number, one in enumerate(moments, 1)]


def _moment(name: str, row: Mapping[str, Any], at: str, what: str) -> dict[str, object]:
    host, pid = (
        row.get("hostname") or row.get("holder_hostname"),
        row.get("pid") or row.get("holder_pid"),
    )
    who = f"{host}:{pid}" if host else row.get("source") or row.get("actor") or row.get("by")
    kind = row.get("action") or row.get("kind") or ""
    if what == "attempt ended":
        kind = row.get("outcome") or ""
    words = (
        row.get("verdict_reason")
        or row.get("why")
        or row.get("filter_reason")
        or row.get("reason")
        or row.get("note")
        or ""
    )
    detail = row.get("verdict_detail") or row.get("filter_detail") or row.get("detail")
    return {
        "at": at,
        "what": f"{what}: {str(kind).replace('_', ' ')}" if kind else what,
        "file": name,
        "id": row.get("id") or row.get("key"),
        "attempt_id": row.get("attempt_id") if name != "attempts" else row.get("id"),
        "who": who,
        "token": row.get("lease_token") or row.get("token"),
        "verdict": row.get("verdict"),
        "rule": row.get("verdict_code") or row.get("filter_code"),
        "words": words,
        "compared": detail if name in {"executor_events", "ghosts", "lease_events"} else None,
    }
