"""A page of a timeline requests nothing, has no script, and shows every name as text."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from tests.views.timeline.stories import chain_of_all_to_all, skewed_join

NAMES = [f"<img src=x onerror=alert({n})>" for n in range(5)]


class Elements(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.names, self.attributes = set(), set()
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}


@pytest.mark.parametrize("form", ["html", "svg", "_repr_html_"])
def test_hostile_names_add_no_element_and_no_attribute(form):
    plain, hostile = (
        Elements(getattr(story.events().timeline(), form)()) for story in (skewed_join(), skewed_join(NAMES))
    )
    assert hostile.names == plain.names
    assert hostile.attributes == plain.attributes
    assert not {"script", "img", "a", "link", "iframe", "object"} & hostile.names
    assert not [name for name in hostile.attributes if name.startswith("on") or name in ("src", "href")]


def test_a_page_forbids_all_requests():
    page = skewed_join().events().timeline().html()
    assert (
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'" in page
    )


def test_a_page_has_the_sentences_with_strong_words():
    page = skewed_join().events().timeline().html()
    assert "<p><b>orders[0] -&gt; join[1]</b> was blocked for <b>340.0 ms</b>" in page


def test_a_page_has_both_colour_schemes():
    assert "prefers-color-scheme:dark" in skewed_join().events().timeline().html()


def test_ids_of_a_page_differ():
    import re

    page = chain_of_all_to_all(12, 8, 4).events().timeline().html()
    ids = re.findall(r' id="([^"]*)"', page)
    assert len(ids) == len(set(ids))
