"""Notes in Markdown as HTML that cannot do anything: every character of theirs is escaped first."""

from __future__ import annotations

import re
from typing import Final

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

HEADING_FIRST: Final = 3  # "#" in a note stands below the headings of the page
_FENCE: Final = "```"
_HEADING: Final = re.compile(r"(#{1,4})\s+(.+)")
_ITEM: Final = re.compile(r"\s{0,3}(?:[-*+]|(\d{1,9})[.)])\s+(.*)")
# Over escaped text: quotes and angle brackets are entities by now.
_CODE: Final = re.compile(r"`([^`\n]{1,500})`")
_LINK: Final = re.compile(r"\[([^\[\]\n]{1,300})\]\((https?://[^\s()<>\"']{1,2000})\)")
_BOLD: Final = re.compile(r"\*\*([^*\n]{1,500})\*\*")
_ITALIC: Final = re.compile(r"(?<![*\w])\*([^*\n]{1,500})\*(?![*\w])")


def rendered(text: str) -> SafeString:
    """Headings, paragraphs, lists, fenced and inline code, bold, italics and links to http(s)."""
    lines = text.replace("\r\n", "\n").split("\n")
    parts: list[str] = []
    at = 0
    while at < len(lines):
        at = _block(lines, at, parts)
    return mark_safe("\n".join(parts))  # noqa: S308 - made of escaped text and the tags below alone


def _block(lines: list[str], at: int, parts: list[str]) -> int:
    """One block has been added; the number of the line after it."""
    line = lines[at]
    if not line.strip():
        return at + 1
    if line.startswith(_FENCE):
        end = next(
            (n for n in range(at + 1, len(lines)) if lines[n].startswith(_FENCE)), len(lines)
        )
        parts.append(f'<pre class="block">{escape(chr(10).join(lines[at + 1 : end]))}</pre>')
        return end + 1
    if heading := _HEADING.fullmatch(line):
        level = min(6, HEADING_FIRST + len(heading[1]) - 1)
        parts.append(f"<h{level}>{_inline(heading[2])}</h{level}>")
        return at + 1
    if item := _ITEM.fullmatch(line):
        tag = "ol" if item[1] else "ul"
        items = []
        while at < len(lines) and (item := _ITEM.fullmatch(lines[at])):
            items.append(f"<li>{_inline(item[2])}</li>")
            at += 1
        parts.append(f"<{tag}>{''.join(items)}</{tag}>")
        return at
    end = at
    while end < len(lines) and lines[end].strip() and not _begins_a_block(lines[end]):
        end += 1
    parts.append(f"<p>{'<br>'.join(_inline(one) for one in lines[at:end])}</p>")
    return end


def _begins_a_block(line: str) -> bool:
    return bool(line.startswith(_FENCE) or _HEADING.fullmatch(line) or _ITEM.fullmatch(line))


def _inline(text: str) -> str:
    """Code is kept from the other rules by standing aside while they are at work."""
    codes: list[str] = []

    def aside(found: re.Match[str]) -> str:
        codes.append(f"<code>{found[1]}</code>")
        return f"\x00{len(codes) - 1}\x00"

    safe = _CODE.sub(aside, str(escape(text.replace("\x00", ""))))
    safe = _LINK.sub(
        r'<a href="\2" rel="noopener noreferrer nofollow" target="_blank">\1</a>', safe
    )
    safe = _BOLD.sub(r"<strong>\1</strong>", safe)
    safe = _ITALIC.sub(r"<em>\1</em>", safe)
    return re.sub(r"\x00(\d+)\x00", lambda found: codes[int(found[1])], safe)
