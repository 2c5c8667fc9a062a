"""Long tables: what stands in a hundred rows is written in Jinja2, which compiles to Python.

Django's own templates took nine tenths of such a page's time; see docs/decisions/0027. A table is told
nothing but what ``PASSED`` names, and what its tag gives it.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.template import defaultfilters
from django.template.loader import get_template
from django.utils.safestring import SafeString
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from dashboard.templatetags import dashboard as tags

if TYPE_CHECKING:
    from django.template import Context
    from jinja2 import Template

# Of the page around it; null where the page has none.
PASSED: Final = (
    *("list", "of", "folds", "tallies", "ti", "attempt"),
    *("with_run", "with_flow", "with_picks"),
)
# Written as on other pages: ``link('run_detail', 5)`` here is ``{% link 'run_detail' 5 %}`` there.
_OF_PAGE: Final = (
    *(tags.duration, tags.link, tags.moment, tags.qs, tags.record_link, tags.sort, tags.until),
)
_FILTERS: Final = {
    **{one.__name__: one for one in (tags.grouped, tags.short, tags.word, tags.worst_first)},
    **{one.__name__: one for one in (tags.mark, tags.state_mark)},
    "default_if_none": defaultfilters.default_if_none,
    "truncatechars": defaultfilters.truncatechars,
}


def rendered(context: Context, name: str, given: dict[str, Any]) -> SafeString:
    """The table of this name on the page of the context."""
    page = {"request": context["request"], "now": context.get("now")}
    values = {one: context.get(one) for one in PASSED}
    functions = {one.__name__: partial(one, page) for one in _OF_PAGE}
    functions["part"] = partial(_part, context)
    # Escaped: each value by Jinja2, each function's answer by itself.
    return SafeString(_template(name).render({**values, **functions, **given}))


def _part(context: Context, name: str, **given: Any) -> SafeString:
    """A part that other pages share: for what few rows have."""
    part = get_template(f"dashboard/parts/{name}.html")
    with context.push(**given):
        return part.template.render(context)  # type: ignore[attr-defined,no-any-return] # Django's own


@cache
def _template(name: str) -> Template:
    return _environment().get_template(f"tables/{name}.jinja")


@cache
def _environment() -> Environment:
    folders = [str(folder) for engine in settings.TEMPLATES for folder in engine["DIRS"]]
    made = Environment(
        loader=FileSystemLoader(folders),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(_FILTERS)
    return made
