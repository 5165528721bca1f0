"""The dialect of patterns: what it refuses, how it is put to each engine, and that it means what Python's means."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.errors import GraphError
from dataflow.expressions import col
from dataflow.expressions.patterns import Pattern


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("a(?=b)", "look-around at character 1"),
        ("a(?!b)", "look-around"),
        ("(?<=a)b", "look-around"),
        ("(?<!a)b", "look-around"),
        (r"(a)\1", "a back reference at character 3"),
        (r"(?P<n>a)\k<n>", "a back reference"),
        ("a++", "a possessive quantifier"),
        ("a{2}+", "a possessive quantifier"),
        ("(?>a)", "an atomic group"),
        ("(?i)a", r"a flag .*lower\(\)"),
        ("a(?s)b", "a flag"),
        ("(?m)^a", "a flag"),
        ("(a*)*", "a repetition of something that can match the empty text"),
        ("(?:a|)+", "empty text"),
        ("(?:a?){2}", "empty text"),
        ("^*a", "a repetition of an anchor"),
        (r"\b+", "a repetition of an anchor"),
        ("a{2}{3}", "a repetition of a repetition"),
        ("a{,3}", "a lone {"),
        ("a}", "a lone }"),
        ("a]", "a lone ]"),
        ("*a", "nothing to repeat"),
        ("(a", r"no \) for a \("),
        ("a)", r"unmatched \)"),
        ("[a", r"no \] for a \["),
        ("[a-", r"no \] for a \["),
        ("[]a]", r"a set that begins with \]"),
        ("[[:alpha:]]", "a POSIX class"),
        (r"[\S]", r"\\S in a set"),
        (r"[\w-z]", "a - after a class"),
        (r"[a-\d]", "a range that ends in a class"),
        ("[a-c-e]", "a - that makes no range"),
        (r"\Z", r"the escape \\Z"),
        (r"\v", r"the escape \\v"),
        (r"\B", r"the escape \\B"),
        (r"\Qa\E", r"the escape \\Q"),
        (r"\p{Greek}", r"the escape \\p"),
        ("a\\", "the escape"),
        ("[z-a]", "not a regular expression: invalid character class range"),
        ("a{1001}", "not a regular expression: .*1001"),
        ("(" * 102 + "a" + ")" * 102, "nested"),
        ("\ud800", "not a regular expression"),
    ],
)
def test_what_engines_do_not_share_is_refused_by_name_and_place(pattern: str, found: str) -> None:
    with pytest.raises(GraphError, match=rf"(?s)^contains: .*{found}"):
        col("s").str.contains(pattern)


@pytest.mark.parametrize("pattern", ["a*", "a|", "^", "(?:a?)", r"\b", "a{0,2}", ""])
def test_a_pattern_that_can_match_nothing_replaces_nothing(pattern: str) -> None:
    with pytest.raises(GraphError, match=r"replace_all: .* can match the empty text"):
        col("s").str.replace_all(pattern, "x")


@pytest.mark.parametrize(
    ("pattern", "re2", "java"),
    [
        ("a.c$", "a.c$", r"(?d)a.c\z"),
        ("(?s)a.c", "(?s)a.c", "(?ds)a.c"),
        (r"\s\S", r"\s\S", r"(?d)[\t\n\f\r ][^\t\n\f\r ]"),
        (r"[^\s[&-]", r"[^\s[&-]", r"(?d)[^\t\n\f\r \[\&\-]"),
        (r"(?P<year>\d{4})-(\w+?)", r"(?:\d{4})-(?P<it>\w+?)", r"(?d)(\d{4})\-(\w+?)"),
        (r"\x{1F600}|\p{Lu}", r"\x{1F600}|\p{Lu}", r"(?d)\x{1F600}|\p{Lu}"),
    ],
)
def test_a_pattern_is_put_in_each_engines_words(pattern: str, re2: str, java: str) -> None:
    read = Pattern.of(pattern, "here")
    assert (read.re2(2), read.java()) == (re2, java)


def test_the_whole_match_is_group_zero() -> None:
    assert Pattern.of("(?s)(a)b", "here").re2(0) == "(?s)(?P<it>(?:a)b)"


atoms = st.sampled_from(
    ["a", "b", "é", "😀", r"\.", "[ab]", "[^a]", "[a-c1]", r"\d", r"\w", "(a)", "(?:ab|b)", "(b|a)", r"\n"]
)
counts = st.sampled_from(["", "", "", "+", "*", "?", "+?", "*?", "{2}", "{1,2}"])
pieces = st.lists(st.tuples(atoms, counts).map("".join), min_size=1, max_size=4).map("".join)
patterns = st.lists(pieces, min_size=1, max_size=2).map("|".join)
subjects = st.lists(st.text("abcé😀1. \n", max_size=8) | st.none(), max_size=6)


def evaluated(expr: object, values: list[str | None]) -> list[object]:
    return expr.evaluate(pa.record_batch({"s": pa.array(values, pa.string())})).to_pylist()  # type: ignore[attr-defined]


@given(patterns, subjects)
def test_patterns_of_the_dialect_mean_what_pythons_do(pattern: str, values: list[str | None]) -> None:
    python = re.compile(pattern, re.ASCII)
    matches = [None if value is None else python.search(value) for value in values]
    contained = [None if value is None else match is not None for value, match in zip(values, matches, strict=True)]
    assert evaluated(col("s").str.contains(pattern), values) == contained
    for group in range(python.groups + 1):
        extracted = [match and (match[group] or "") for match in matches]
        assert evaluated(col("s").str.extract(pattern, group), values) == extracted


@given(pieces.filter(lambda pattern: not re.fullmatch(pattern, "")), subjects, st.text("$\\1a", max_size=3))
def test_replacing_is_pythons_with_plain_text(pattern: str, values: list[str | None], plain: str) -> None:
    python = re.compile(pattern, re.ASCII)
    replaced = [None if value is None else python.sub(lambda _: plain, value) for value in values]
    assert evaluated(col("s").str.replace_all(pattern, plain), values) == replaced
