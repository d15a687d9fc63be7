"""Whatever producers and buses say, it cannot become HTML."""

from __future__ import annotations

from bronze_sidecar.status.markup import element, together

HOSTILE = '<script>alert("1")</script>&amp;\''
HARMLESS = "&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;amp;&#x27;"


def test_texts_and_attributes_are_escaped() -> None:
    assert str(element("p", HOSTILE, title=HOSTILE)) == f'<p title="{HARMLESS}">{HARMLESS}</p>'


def test_elements_are_put_together_as_they_are() -> None:
    inner = element("b", "x", class_="y", data_label="z", hidden=True, open=False)
    assert str(together("<", None, inner)) == '&lt;<b class="y" data-label="z" hidden>x</b>'
