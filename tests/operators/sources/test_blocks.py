"""Text in blocks: a block that begins at a place is the same whoever comes there."""

from __future__ import annotations

import io

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from operators.sources.blocks import Block, Blocks, BlockStart


def whole_lines(data: bytes, final: bool) -> int:  # noqa: FBT001  the shape of blocks.Cut
    return len(data) if final else data.rfind(b"\n") + 1


def quoted(data: bytes, final: bool) -> int:  # noqa: FBT001
    """Rows whose newlines stand behind an even number of quotes."""
    even = [i + 1 for i, c in enumerate(data) if c == 10 and data.count(b'"', 0, i) % 2 == 0]
    return len(data) if final and data.count(b'"') % 2 == 0 else (even or [0])[-1]


BEGIN = BlockStart(0, 1)


def blocks(text: bytes, size: int, place: BlockStart = BEGIN, longest: int = 1 << 20) -> list[Block]:
    return list(Blocks(io.BytesIO(text[place.byte :]), quoted, place, block_bytes=size, longest=longest))


TEXT = st.lists(st.sampled_from([b"a", b'"', b"\n", b"\r\n", b"bcd"]), max_size=40).map(b"".join)


@given(TEXT, st.integers(1, 30), st.sampled_from([8, 1 << 20]))
@example(b'"\na\r\na', 1, 8)
@example(b"abcdbcd\r\n", 1, 8)
def test_blocks_are_the_text_and_begin_again_anywhere(text: bytes, size: int, longest: int) -> None:
    whole = blocks(text, size, longest=longest)
    assert b"".join(block.data for block in whole) == text
    for index, block in enumerate(whole):
        assert block.line == 1 + text.count(b"\n", 0, block.at)
        assert blocks(text, size, BlockStart(block.at, block.line), longest) == whole[index:]


def test_a_row_longer_than_a_block_makes_it_grow() -> None:
    assert [block.data for block in blocks(b'"a\n\n\n"b\nc\n', 2)] == [b'"a\n\n\n"b\n', b"c\n"]


def test_the_first_line_of_a_row_that_never_ends_stands_alone() -> None:
    whole = blocks(b'a\n"b\nc\nd\n', 100)
    assert [(block.data, block.broken) for block in whole] == [(b"a\n", False), (b'"b\n', True), (b"c\nd\n", False)]


def test_a_row_that_is_too_long_is_given_up_after_its_first_line() -> None:
    whole = blocks(b'"b\n' + b"c\n" * 9, 2, longest=8)
    assert [(block.data, block.broken) for block in whole][:2] == [(b'"b\n', True), (b"c\n", False)]


@pytest.mark.parametrize(("text", "at"), [(b"\xef\xbb\xbfa\n", BlockStart(3, 1)), (b"a\n", BEGIN), (b"", BEGIN)])
def test_a_mark_before_the_text_is_left_out(text: bytes, at: BlockStart) -> None:
    stream = Blocks(io.BytesIO(text), whole_lines, BlockStart(0, 1), block_bytes=2)
    stream.skip_mark()
    assert stream.place == at


def test_lines_are_left_out_whatever_is_in_them() -> None:
    stream = Blocks(io.BytesIO(b'a "long" line\n"\nb\n'), whole_lines, BlockStart(0, 1), block_bytes=2)
    stream.skip_line()
    stream.skip_line()
    assert (stream.place.line, [block.data for block in stream]) == (3, [b"b\n"])
