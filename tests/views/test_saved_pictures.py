"""Pictures as files and pages: written whole, refused with a reason, and requesting nothing."""

from __future__ import annotations

import errno
from html.parser import HTMLParser
from pathlib import Path

import pytest

import dataflow as flow
from dataflow.errors import ConfigurationError, StoreError
from dataflow.store.files import FileSystem
from dataflow.views.picture import Picture
from dataflow.views.pipeline.sketch import logical_sketch
from tests.views.pipeline.sketches import HOSTILE, hostile_plan


@pytest.fixture
def picture() -> Picture:
    return Picture(logical_sketch(HOSTILE[0], hostile_plan()))


class Tags(HTMLParser):
    """The tags and attributes of a page, and the text outside of style sheets."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)


def test_each_suffix_has_its_form(picture: Picture, tmp_path: Path) -> None:
    forms = {"svg": picture.svg, "HTML": picture.html, "mmd": picture.mermaid, "txt": lambda: f"{picture.text()}\n"}
    for suffix, form in forms.items():
        picture.save(tmp_path / f"a.b.{suffix}")
        assert (tmp_path / f"a.b.{suffix}").read_text(encoding="utf-8") == form()
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize("name", ["picture.png", "picture", ".svg", "svg", "picture.svg.gz", "nul\0.svg", "."])
def test_another_suffix_is_refused_with_the_choices(picture: Picture, name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"must end in \.svg, \.html, \.mmd or \.txt"):
        picture.save(name)


def test_a_missing_folder_is_named_with_what_to_do(picture: Picture, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"picture .*missing/a\.svg: No such file .*create the parent directory"):
        picture.save(tmp_path / "missing" / "a.svg")


def test_a_directory_and_a_path_through_a_file_are_refused(picture: Picture, tmp_path: Path) -> None:
    (tmp_path / "a.svg").mkdir()
    with pytest.raises(StoreError, match="Is a directory"):
        picture.save(tmp_path / "a.svg")
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="Not a directory"):
        picture.save(tmp_path / "file" / "a.svg")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.svg", "file"]


def test_a_failed_write_leaves_the_old_file(picture: Picture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "a.svg"
    path.write_text("old")
    monkeypatch.setattr(FileSystem, "write", full)
    with pytest.raises(StoreError, match="the disk is full"):
        picture.save(path)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.svg", "old")]


def test_a_page_has_no_script_and_requests_nothing(picture: Picture) -> None:
    page = picture.html()
    parsed = Tags(page)
    assert "default-src 'none'; style-src 'unsafe-inline'" in page
    assert not parsed.tags & {"script", "img", "a", "link", "iframe", "image", "use", "foreignobject", "base", "form"}
    assert not [name for name in parsed.attributes if name.startswith("on") or name in ("src", "href", "xlink:href")]
    assert "url(" not in page


def test_a_notebook_shows_the_picture_and_below_it_the_columns() -> None:
    p = flow.Pipeline(HOSTILE[0])
    for html in (p._repr_html_(), p.draw()._repr_html_()):
        parsed = Tags(html)
        assert "svg" in parsed.tags
        assert "img" not in parsed.tags
    assert "<pre>Pipeline(&#x27;&lt;img src=x onerror=alert(1)&gt;&#x27;)</pre>" in p._repr_html_()


def test_a_picture_prints_as_its_text(picture: Picture) -> None:
    assert str(picture) == repr(picture) == picture.text()
