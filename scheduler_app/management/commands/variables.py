"""``manage.py variables``: what flows share, in and out, and the keys that secrets are sealed under."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand

from scheduler_app.management.arguments import (
    actor,
    add_json,
    add_list_options,
    as_asked,
    json_value,
    lens,
)
from scheduler_app.management.output import as_json, fail, page_as_json, table, told_page
from scheduler_app.operations.variables import (
    UNSET,
    delete_variable,
    import_variables,
    increment_variable,
    reveal_variables,
    rotate_keys,
    set_variable,
)
from scheduler_app.queries import variable_changes, variables
from scheduler_app.queries.filters import VariableChangeFilter, VariableFilter
from scheduler_app.queries.list_filter import LIMIT_MAX
from scheduler_app.queries.scope import EVERYTHING
from scheduler_app.rules.errors import InvalidInput, SchedulerError
from scheduler_app.rules.variables import MASK

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django.core.management.base import CommandParser


class Command(BaseCommand):
    """Exit codes: 0 done, 1 refused or not there, 2 wrong arguments."""

    help = "Read and change the variables that flows share; seal secrets under a new key."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """One verb with its own arguments."""
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        listed = verbs.add_parser("list", help="variables by key; secrets are masked")
        listed.add_argument("--contains", metavar="TEXT", action="append", default=[])
        add_list_options(listed)
        read = verbs.add_parser("get", help="print one value as JSON")
        read.add_argument("key", metavar="KEY")
        read.add_argument("--default", metavar="JSON", type=json_value, default=UNSET)
        read.add_argument("--reveal", action="store_true", help="a secret in clear; it is audited")
        add_reason(read)
        history = verbs.add_parser("history", help="who changed it, when and why")
        history.add_argument("key", metavar="KEY")
        add_list_options(history)
        written = verbs.add_parser("set", help="set one value")
        written.add_argument("key", metavar="KEY")
        written.add_argument(
            "value", metavar="JSON", help="a JSON value, a text in quotes; - reads standard input"
        )
        written.add_argument("--description", help="what it is for")
        written.add_argument(
            "--secret", action="store_true", default=None, help="sealed at rest, masked everywhere"
        )
        written.add_argument(
            "--expected-version", type=int, metavar="N", help="only if it has this version; 0: none"
        )
        add_reason(written)
        counted = verbs.add_parser("increment", help="count a number up, in one step")
        counted.add_argument("key", metavar="KEY")
        counted.add_argument("--by", type=_number, default=1, help="default 1; may be negative")
        add_reason(counted)
        deleted = verbs.add_parser("delete", help="delete one; its history stays")
        deleted.add_argument("key", metavar="KEY")
        add_reason(deleted)
        brought = verbs.add_parser("import", help="set all that a JSON file has, or none of them")
        brought.add_argument(
            "file", metavar="FILE", help="an object by key; - reads standard input"
        )
        brought.add_argument(
            "--existing", choices=("overwrite", "skip", "fail"), default="overwrite"
        )
        add_reason(brought)
        taken = verbs.add_parser("export", help="all of them as a JSON object, without secrets")
        taken.add_argument("file", metavar="FILE", nargs="?", default="-")
        taken.add_argument(
            "--with-secrets", action="store_true", help="secrets too, in clear; it is audited"
        )
        add_reason(taken)
        rotated = verbs.add_parser("rotate-key", help="seal every secret under a new key")
        rotated.add_argument(
            "--reseal-only", action="store_true", help="under the newest key there is; make none"
        )
        rotated.add_argument(
            "--drop-old", action="store_true", help="older keys of the data folder go afterwards"
        )
        add_reason(rotated)
        for verb in (written, counted, deleted, brought, rotated):
            add_json(verb)

    def handle(self, *args: Any, **options: Any) -> None:
        """The verb's function has printed its answer."""
        del args
        try:
            getattr(self, f"_{options['verb'].replace('-', '_')}")(options)
        except SchedulerError as error:
            fail(str(error))
        except OSError as error:
            fail(f"{error.filename}: {error.strerror}")

    def _list(self, options: dict[str, Any]) -> None:
        asked = VariableFilter(
            q=tuple(options["contains"]), limit=options["limit"], filtered=lens(options)
        )
        asked = as_asked(asked, options)
        page = variables.page(asked, EVERYTHING)
        if options["json"]:
            self.stdout.write(page_as_json(page))
            return
        lines = [
            (
                row.key,
                MASK if row.is_secret else json.dumps(row.value, ensure_ascii=False),
                row.version,
                row.updated_at,
                row.updated_by,
                row.description,
            )
            for row in page.rows
        ]
        headings = ("KEY", "VALUE", "VERSION", "CHANGED", "BY", "FOR")
        self.stdout.write(table(headings, lines))
        self.stdout.write(f"\n{told_page(page, 'variables', lens=asked.filtered)}")

    def _get(self, options: dict[str, Any]) -> None:
        key = options["key"]
        if options["reveal"]:
            found = reveal_variables(keys=[key], actor=actor(), reason=options["reason"])
            value = found[key]["value"]
        else:
            rows = variables.page(VariableFilter(key=(key,)), EVERYTHING).rows
            if not rows and options["default"] is not UNSET:
                self.stdout.write(as_json(options["default"]))
                return
            row = rows[0] if rows else variables.one(EVERYTHING, key)
            value = MASK if row.is_secret else row.value
        self.stdout.write(json.dumps(value, ensure_ascii=False, indent=2))

    def _history(self, options: dict[str, Any]) -> None:
        asked = VariableChangeFilter(key=(options["key"],), limit=options["limit"])
        asked = as_asked(asked, options)
        page = variable_changes.page(asked, EVERYTHING)
        if options["json"]:
            self.stdout.write(page_as_json(page))
            return
        lines = [
            (
                row.at,
                row.actor,
                row.action,
                json.dumps(row.before, ensure_ascii=False),
                json.dumps(row.after, ensure_ascii=False),
                row.reason,
            )
            for row in page.rows
        ]
        self.stdout.write(table(("AT", "BY", "WHAT", "BEFORE", "AFTER", "WHY"), lines))
        self.stdout.write(f"\n{told_page(page, 'changes', lens=asked.filtered)}")

    def _set(self, options: dict[str, Any]) -> None:
        text = sys.stdin.read() if options["value"] == "-" else options["value"]
        try:
            value = json_value(text)
        except ArgumentTypeError as error:
            fail(str(error), 2)
        written = set_variable(
            key=options["key"],
            value=value,
            description=options["description"],
            is_secret=options["secret"],
            expected_version=options["expected_version"],
            actor=actor(),
            reason=options["reason"],
        )
        assert written.after is not None, "it is there"
        what = "created" if written.before is None else "set"
        self._tell(
            options,
            {
                "key": options["key"],
                "version": written.after.version,
                "changed": written.has_changed,
            },
            f"Variable {options['key']} {what if written.has_changed else 'was so already'}.",
        )

    def _increment(self, options: dict[str, Any]) -> None:
        written = increment_variable(
            key=options["key"], by=options["by"], actor=actor(), reason=options["reason"]
        )
        assert written.after is not None, "it is there"
        number = MASK if written.after.is_secret else written.after.value
        self._tell(options, {"key": options["key"], "value": number}, f"{number}")

    def _delete(self, options: dict[str, Any]) -> None:
        delete_variable(key=options["key"], actor=actor(), reason=options["reason"])
        self._tell(options, {"deleted": options["key"]}, f"Variable {options['key']} deleted.")

    def _import(self, options: dict[str, Any]) -> None:
        file = options["file"]
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        try:
            given = json.loads(text)
        except ValueError as error:
            fail(f"{file}: not JSON ({error})", 2)
        if not isinstance(given, dict):
            raise InvalidInput(f'{file}: no JSON object; write one, as {{"limit": 10}}')
        done = import_variables(
            given=given, actor=actor(), reason=options["reason"], existing=options["existing"]
        )
        self._tell(
            options,
            done,
            f"{len(done.created)} created, {len(done.changed)} changed, {len(done.kept)} left as"
            " they were.",
        )

    def _export(self, options: dict[str, Any]) -> None:
        found: dict[str, Any] = {}
        left_out = 0
        asked = VariableFilter(limit=LIMIT_MAX)
        while True:
            page = variables.page(asked, EVERYTHING)
            for row in page.rows:
                if row.is_secret and not options["with_secrets"]:
                    left_out += 1
                    continue
                found[row.key] = {"value": row.value, "description": row.description}
                if row.is_secret:
                    found[row.key]["is_secret"] = True
            if not page.next_cursor:
                break
            asked = asked.evolve(cursor=page.next_cursor)
        secret = [key for key, one in found.items() if one.get("is_secret")]
        if secret:
            found |= reveal_variables(keys=secret, actor=actor(), reason=options["reason"])
        text = json.dumps(found, ensure_ascii=False, indent=2)
        if options["file"] == "-":
            self.stdout.write(text)
        else:
            path = Path(options["file"])
            path.touch(mode=0o600)
            path.write_text(f"{text}\n", encoding="utf-8")
        if left_out:
            self.stderr.write(f"{left_out} secrets left out; --with-secrets takes them along.")

    def _rotate_key(self, options: dict[str, Any]) -> None:
        done = rotate_keys(
            actor=actor(),
            reason=options["reason"],
            new_key=not options["reseal_only"],
            drop_old=options["drop_old"],
        )
        self._tell(
            options,
            done,
            f"{done.resealed} secrets sealed under key {done.key_name}; {done.dropped} older keys"
            " dropped.",
        )

    def _tell(self, options: dict[str, Any], told: object, sentence: str) -> None:
        self.stdout.write(as_json(told) if options["json"] else sentence)


def add_reason(parser: ArgumentParser) -> None:
    """The verb changes something, or shows a secret: why."""
    parser.add_argument("--reason", default="", help="why, for the audit; needed to act")


def _number(text: str) -> float:
    value = json_value(text)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ArgumentTypeError(f"{text} is no number")
    return value
