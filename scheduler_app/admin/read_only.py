"""How any model is shown: a list with its standing, and one row with every field but secrets."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.core.paginator import Paginator
from django.db.models import BinaryField, JSONField, ManyToManyField, TextField
from django.http import HttpResponseRedirect
from django.urls import reverse

from scheduler_app.queries import lens
from scheduler_app.queries.list_filter import Lens, ListFilter
from scheduler_app.queries.nouns import NOUNS
from scheduler_app.queries.scope import visible_flows
from scheduler_app.rules import visibility

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.contrib.admin.views.main import ChangeList
    from django.db.models import Field, Model, QuerySet
    from django.http import HttpRequest, HttpResponse

COLUMNS_MAX: Final = 12
ROWS_A_PAGE: Final = 50
COUNTED_MAX: Final = 10_000  # rows; a list counts no further
# Fields whose value opens something.
SECRETS: Final[dict[str, frozenset[str]]] = {
    "auth.user": frozenset({"password"}),
    "scheduler_app.apitoken": frozenset({"digest", "stamp"}),
    "scheduler_app.connection": frozenset({"sealed"}),
    "scheduler_app.variable": frozenset({"value", "sealed"}),
}

# What may be asked for of a row: the verb, and the page that shows what would follow.
ACTS: Final[dict[str, dict[str, str]]] = {
    "scheduler_app.flow": {
        "freeze": "dashboard:flow_freeze",
        "thaw": "dashboard:flow_thaw",
    },
    "scheduler_app.run": {
        "freeze": "dashboard:run_freeze",
        "thaw": "dashboard:run_thaw",
        "clear": "dashboard:run_clear",
        "retry": "dashboard:run_retry",
        "mark": "dashboard:run_mark",
        "terminate": "dashboard:run_terminate",
    },
    "scheduler_app.review": {"decide": "dashboard:review_detail"},
    "scheduler_app.taskinstance": {
        "freeze": "dashboard:task_instance_freeze",
        "thaw": "dashboard:task_instance_thaw",
        "clear": "dashboard:task_instance_clear",
        "mark": "dashboard:task_instance_mark",
        "terminate": "dashboard:task_instance_terminate",
    },
}


# The page that does the same for several rows, each named under ``id``.
SEVERAL: Final[dict[str, str]] = {
    f"dashboard:{one}_{verb}": f"dashboard:{one}s_{verb}"
    for one in ("run", "task_instance")
    for verb in ("freeze", "clear", "mark")
}
CHOSEN_MAX: Final = 500  # rows that one act may be about


class CappedPaginator(Paginator):  # type: ignore[type-arg] # generic in the stubs alone
    """Counts no further than a limit, so that a large table costs no more than a small one."""

    @cached_property
    def count(self) -> int:
        """Rows, up to the limit."""
        rows: Any = self.object_list
        return int(rows.order_by()[:COUNTED_MAX].count())


class StandingFilter(admin.SimpleListFilter):
    """The switch: current rows, filtered ones too, filtered ones alone, or one reason."""

    title = "standing"
    parameter_name = "filtered"

    def __init__(
        self,
        request: HttpRequest,
        params: dict[str, list[str]],
        model: type[Model],
        model_admin: admin.ModelAdmin[Any],
    ) -> None:
        noun, asked = _listed(model)
        self._counts = lens.counts(noun, asked(), visible_flows(request.user))
        super().__init__(request, params, model, model_admin)

    def lookups(
        self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]
    ) -> list[tuple[str, str]]:
        """The views of the list, each with its count."""
        del request, model_admin
        counts = self._counts
        some = "" if counts.exact else "+"
        return [
            (Lens.ALL.value, f"all ({counts.total}{some})"),
            (Lens.ONLY.value, f"filtered ({counts.filtered}{some})"),
            *((code, f"{code} ({number})") for code, number in counts.by_reason.items()),
        ]

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        """As Django's, with what is shown by default under its own name."""
        for place, choice in enumerate(super().choices(changelist)):
            if place == 0:
                some = "" if self._counts.exact else "+"
                yield {**choice, "display": f"current ({self._counts.shown}{some})"}
            else:
                yield choice

    def has_output(self) -> bool:
        """Shown even where nothing is filtered: that is said, too."""
        return True

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The rows of the chosen view."""
        del request
        match self.value():
            case None:
                return queryset.filter(filter_code__isnull=True)
            case Lens.ALL:
                return queryset
            case Lens.ONLY:
                return queryset.filter(filter_code__isnull=False)
            case code:
                return queryset.filter(filter_code=code)


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg] # generic in the stubs alone
    """Shows a model; every way to change it is closed."""

    actions = ()
    list_display_links = None
    list_per_page = ROWS_A_PAGE
    list_max_show_all = ROWS_A_PAGE
    paginator = CappedPaginator
    show_full_result_count = False
    view_on_site = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never."""
        del request
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never."""
        del request, obj
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never."""
        del request, obj
        return False

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Superusers alone, on every model."""
        del obj
        return bool(request.user.is_active and request.user.is_superuser)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """The rows of the noun, with their standing; of a model without a list, all rows."""
        if self._has_standing():
            rows = _listed(self.model)[0].rows(visible_flows(request.user))
        else:
            rows = super().get_queryset(request)
        # A list does not show them; a page of one row reads them when it does.
        meta = self.model._meta  # noqa: SLF001 - documented by Django as public
        return rows.defer(*(each.name for each in meta.fields if _is_large(each)))

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        """The small columns, and why a row is filtered."""
        del request
        columns = [_column(each) for each in self._fields() if not _is_large(each)]
        own = [name for name in columns if name not in _STANDING][:COLUMNS_MAX]
        return [*own, "standing", "reason"] if self._has_standing() else own

    def get_actions(self, request: HttpRequest) -> Any:
        """Each leads to the sheet that shows what would follow, asks why, and acts when it is sent."""
        del request
        verbs = ACTS.get(self.model._meta.label_lower, {})  # noqa: SLF001 - documented by Django as public
        return {
            verb: (_to_sheet(page), verb, f"{verb.capitalize()}…") for verb, page in verbs.items()
        }

    def get_list_display_links(self, request: HttpRequest, list_display: Any) -> Any:
        """The first column leads to the row."""
        del request
        return list_display[:1]

    def get_list_filter(self, request: HttpRequest) -> list[Any]:
        """The switch, where rows have a standing."""
        del request
        return [StandingFilter] if self._has_standing() else []

    def get_ordering(self, request: HttpRequest) -> Any:
        """Newest first, as far as keys grow."""
        del request
        return ["-pk"]

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Every field of the row but secrets and raw bytes."""
        del request, obj
        return [each.name for each in self._fields() if not isinstance(each, BinaryField)]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """All that are shown."""
        return self.get_fields(request, obj)

    @admin.display(description="standing")
    def standing(self, row: Any) -> str:
        """The word of the reason; a dash for a current row."""
        return visibility.chip(row.filter_code) if row.filter_code else "–"

    @admin.display(description="reason")
    def reason(self, row: Any) -> str:
        """The reason as a sentence."""
        return visibility.explain(row.filter_code, row.filter_detail) if row.filter_code else "–"

    def _has_standing(self) -> bool:
        listed = _LISTED.get(self.model._meta.label_lower)  # noqa: SLF001 - documented by Django as public
        return listed is not None and issubclass(listed[0].row, lens.Standing)

    def _fields(self) -> list[Field[Any, Any]]:
        meta = self.model._meta  # noqa: SLF001 - documented by Django as public
        hidden = SECRETS.get(meta.label_lower, frozenset())
        return [each for each in (*meta.fields, *meta.many_to_many) if each.name not in hidden]


def _to_sheet(page: str) -> Any:
    """The action that opens this page for the row that was chosen, or the one for several of them."""

    def open_sheet(
        model_admin: admin.ModelAdmin[Any], request: HttpRequest, rows: QuerySet[Any]
    ) -> HttpResponse | None:
        chosen = [row.pk for row in rows.only("pk").order_by("pk")[: CHOSEN_MAX + 1]]
        # Back to the list afterwards.
        back = {"next": request.get_full_path()}
        if len(chosen) == 1:
            return HttpResponseRedirect(f"{reverse(page, args=chosen)}?{urlencode(back)}")
        if page not in SEVERAL:
            model_admin.message_user(request, "Choose one row at a time.", messages.WARNING)
            return None
        if len(chosen) > CHOSEN_MAX:
            told = f"Choose at most {CHOSEN_MAX} rows at a time."
            model_admin.message_user(request, told, messages.WARNING)
            return None
        named = urlencode({**back, "id": chosen}, doseq=True)
        return HttpResponseRedirect(f"{reverse(SEVERAL[page])}?{named}")

    return open_sheet


_STANDING: Final = frozenset({"filter_code", "filtered_at", "filter_detail", "superseded_by"})
_LISTED: Final[dict[str, tuple[lens.Noun[Any], type[ListFilter]]]] = {
    noun.model._meta.label_lower: (noun, asked)  # noqa: SLF001 - documented by Django as public
    for noun, asked in NOUNS.values()
}


def _listed(model: type[Model]) -> tuple[lens.Noun[Any], type[ListFilter]]:
    return _LISTED[model._meta.label_lower]  # noqa: SLF001 - documented by Django as public


def _column(field: Field[Any, Any]) -> str:
    # The number of a parent, not its row: a join would hide rows whose parent is gone.
    return field.attname


def _is_large(field: Field[Any, Any]) -> bool:
    return field.name not in _STANDING and isinstance(
        field, BinaryField | JSONField | TextField | ManyToManyField
    )
