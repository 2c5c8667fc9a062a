"""Several records that an address names one by one, as lists send them from their checkboxes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scheduler_app.rules.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest

CHOSEN_MAX: Final = 500  # as many as a page of a list has at most


def chosen(request: HttpRequest, see: Callable[[int], Any]) -> list[int]:
    """The numbers under ``id``, each once; ``see`` raises where the reader may not see one.

    Raises ``InvalidInput`` for none, for what is no number, and for too many.
    """
    given = request.POST if request.method == "POST" else request.GET
    texts = list(dict.fromkeys(given.getlist("id")))
    if not texts:
        raise InvalidInput("Nothing is chosen: tick the rows first.", parameter="id")
    if len(texts) > CHOSEN_MAX:
        message = f"{len(texts)} are chosen; choose at most {CHOSEN_MAX}, or act on a filter."
        raise InvalidInput(message, parameter="id")
    wrong = [text for text in texts if not (text.isascii() and text.isdigit() and len(text) < 19)]
    if wrong:
        raise InvalidInput(f"id: {wrong[0]!r} is not the number of a record.", parameter="id")
    ids = [int(text) for text in texts]
    for number in ids:
        see(number)
    return ids
