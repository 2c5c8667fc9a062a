"""``manage.py evidence``: everything that proves what happened to one record, as a file; and its check."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.core.management.base import BaseCommand

from scheduler_app.management.arguments import actor
from scheduler_app.management.output import fail
from scheduler_app.operations.note_export import note_evidence
from scheduler_app.queries import evidence
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.rules.errors import SchedulerError

if TYPE_CHECKING:
    from django.core.management.base import CommandParser


class Command(BaseCommand):
    """Exit codes: 0 written or intact, 1 refused or changed, 2 wrong arguments."""

    help = (
        "Write the evidence of a run, task instance, attempt, ghost or take-over: records with their"
        " reasons, events with verdicts and compared values, lease events around it, audit, logs, and a"
        " manifest with the digest of each file. Or verify such a file."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Of what, or which file."""
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        for kind in evidence.Kind:
            taken = verbs.add_parser(
                kind.value.replace("_", "-"),
                help=f"the evidence of one {kind.value.replace('_', ' ')}",
            )
            taken.set_defaults(kind=kind)
            taken.add_argument(
                "id", type=UUID if kind is evidence.Kind.ATTEMPT else int, metavar="ID"
            )
            taken.add_argument("--format", choices=sorted(evidence.FORMATS), default="zip")
            taken.add_argument("--no-logs", action="store_true", help="leave the logs out")
            taken.add_argument(
                "--output", type=Path, metavar="FILE", help="default: standard output"
            )
        verified = verbs.add_parser(
            "verify", help="whether a file is what it was when it was taken"
        )
        verified.add_argument("file", type=Path, metavar="FILE")

    def handle(self, *args: Any, **options: Any) -> None:
        """The file is written, or was checked."""
        try:
            if options["verb"] == "verify":
                self._verify(options["file"])
            else:
                self._write(options)
        except SchedulerError as error:
            fail(str(error))
        except OSError as error:
            fail(f"{error.filename}: {error.strerror}")

    def _write(self, options: dict[str, Any]) -> None:
        found = evidence.gather(
            EVERYTHING, options["kind"], options["id"], with_logs=not options["no_logs"]
        )
        _, write = evidence.FORMATS[options["format"]]
        data = write(found, exported_by=actor())
        if options["output"] is None:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        else:
            options["output"].write_bytes(data)
        files = found.files(with_tables=options["format"] == "zip")
        digest = found.manifest(files, exported_by=actor())["content_sha256"]
        note_evidence(
            actor=actor(),
            kind=options["kind"].value,
            object_id=str(options["id"]),
            content_sha256=digest,
        )
        rows = sum(len(each) for each in found.rows.values())
        self.stderr.write(f"{rows} rows and {len(found.logs)} logs written; digest {digest}")
        for sentence in found.omitted:
            self.stderr.write(sentence)

    def _verify(self, path: Path) -> None:
        faults = evidence.faults_of(path.read_bytes())
        if faults:
            fail("\n".join(f"{path}: {fault}" for fault in faults))
        self.stdout.write(f"{path}: intact, every file is what its manifest says")
