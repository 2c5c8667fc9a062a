"""Notes as HTML: what is rendered, and that nothing in them can do anything."""

from __future__ import annotations

import html5lib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.markdown import rendered

TAGS = {"p", "br", "h3", "h4", "h5", "h6", "ul", "ol", "li", "pre", "code", "strong", "em", "a"}
TEXTS = "<script>|</p>|\"|'|`|**|*|[|](|)|https://x.y/|javascript:|# |- |1. |```|a| |&lt;|0"
PIECES = st.sampled_from([*TEXTS.split("|"), "\n", "\n\n", "\x00"])


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("# Done", "<h3>Done</h3>"),
        ("one\ntwo\n\nthree", "<p>one<br>two</p>\n<p>three</p>"),
        ("- a\n- b", "<ul><li>a</li><li>b</li></ul>"),
        ("1. a\n2. b", "<ol><li>a</li><li>b</li></ol>"),
        (
            "**b** and *i* and `c*d*`",
            "<p><strong>b</strong> and <em>i</em> and <code>c*d*</code></p>",
        ),
        ("```\n<b> **x**\n```", '<pre class="block">&lt;b&gt; **x**</pre>'),
        (
            "[the rest](https://example.org/?a=1&b=2)",
            '<p><a href="https://example.org/?a=1&amp;b=2" rel="noopener noreferrer nofollow"'
            ' target="_blank">the rest</a></p>',
        ),
        ("[x](javascript:alert(1))", "<p>[x](javascript:alert(1))</p>"),
        ("<img src=x onerror=alert(1)>", "<p>&lt;img src=x onerror=alert(1)&gt;</p>"),
    ],
)
def test_what_a_note_becomes(text: str, html: str) -> None:
    assert rendered(text) == html


@given(st.lists(PIECES, max_size=40).map("".join))
def test_no_note_brings_a_tag_or_attribute_of_its_own(text: str) -> None:
    tree = html5lib.parseFragment(rendered(text), namespaceHTMLElements=False)
    for element in tree.iter():
        if element is tree:
            continue
        assert element.tag in TAGS
        if element.tag == "a":
            assert element.attrib["href"].startswith(("http://", "https://"))
            assert set(element.attrib) == {"href", "rel", "target"}
        else:
            assert element.attrib in ({}, {"class": "block"})
