"""Long tables: what stands in a hundred rows is written in Jinja2, which compiles it to Python.

Django's own templates took nine tenths of such a page's time: docs/decisions/0027. A table is told
nothing but what ``PASSED`` names and what its tag gives it.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from django import template
from django.conf import settings
from django.template import Context, defaultfilters
from django.template.loader import get_template
from django.utils.safestring import SafeString

from dashboard.templatetags import dashboard as tags

if TYPE_CHECKING:
    from collections.abc import Callable

    from jinja2 import Environment, Template

register = template.Library()

# Of the page around it; null where the page has none.
PASSED: Final = (
    *("list", "of", "folds", "tallies", "ti", "attempt", "row"),
    *("with_run", "with_flow", "with_picks"),
)
# Written as on other pages: ``link('run_detail', 5)`` here is ``{% link 'run_detail' 5 %}`` there.
OF_PAGE: Final[tuple[Callable[..., object], ...]] = (
    *(tags.duration, tags.link, tags.moment, tags.qs, tags.record_link, tags.sort, tags.until),
)
FILTERS: Final[dict[str, Callable[..., object]]] = {
    "default_if_none": defaultfilters.default_if_none,
    "grouped": tags.grouped,
    "mark": tags.mark,
    "short": tags.short,
    "state_mark": tags.state_mark,
    "truncatechars": defaultfilters.truncatechars,
    "word": tags.word,
    "worst_first": tags.worst_first,
}


@register.simple_tag(takes_context=True)
def table(context: Context, name: str, **given: Any) -> SafeString:
    """The table ``templates/tables/NAME.jinja``, told what the page knows and what is given here."""
    page = Context({"request": context["request"], "now": context.get("now")})
    functions: dict[str, object] = {one.__name__: partial(one, page) for one in OF_PAGE}
    functions["part"] = partial(_part, context)
    values = {one: context.get(one) for one in PASSED}
    # Escaped: each value by Jinja2, each function's answer by itself.
    return SafeString(_template(name).render({**values, **functions, **given}))


def _part(context: Context, name: str, **given: Any) -> SafeString:
    """A part that other pages share: for what few rows have."""
    part: Any = get_template(f"dashboard/parts/{name}.html")
    with context.push(**given):
        shown: SafeString = part.template.render(context)
    return shown


@cache
def _template(name: str) -> Template:
    return environment().get_template(f"tables/{name}.jinja")


@cache
def environment() -> Environment:
    """Where tables are found and what they may use."""
    # Every process loads the tags, and only web shows tables.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415

    made = Environment(
        loader=FileSystemLoader(settings.BASE_DIR / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(FILTERS)
    return made
