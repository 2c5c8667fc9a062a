"""The tag of long tables; the engine behind it is imported with the first of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import template

if TYPE_CHECKING:
    from django.template import Context
    from django.utils.safestring import SafeString

register = template.Library()


@register.simple_tag(takes_context=True)
def table(context: Context, name: str, **given: Any) -> SafeString:
    """The table ``templates/tables/NAME.jinja``, told what the page knows and what is given here."""
    from dashboard import tables  # noqa: PLC0415 - processes without pages do without Jinja2

    return tables.rendered(context, name, given)
