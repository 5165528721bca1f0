"""Examples of the functions of text, lists and structs."""

from __future__ import annotations

import pyarrow as pa

from tests.expressions.cases import ints, of, texts

TEXT = [
    *of("str.length", ("col('s').str.length()", {"s": texts("né", "", "😀", "e\u0301", None)}, [2, 0, 1, 2, None])),
    *of(
        "str.lower, upper",
        ("col('s').str.lower()", {"s": texts("ÀB-1", "\u0391\u03a3", "ẞ", "")}, ["àb-1", "\u03b1\u03c3", "ß", ""]),
        ("col('s').str.upper()", {"s": texts("àb-1", "\u03b1\u03c2", "ß", "ŉ")}, ["ÀB-1", "\u0391\u03a3", "ẞ", "ŉ"]),
    ),
    *of(
        "str.strip",
        (
            "col('s').str.strip()",
            {"s": texts(" a b\n", "\u3000\x85a\u2009", "\x1fa\u200b", " ")},
            ["a b", "a", "\x1fa\u200b", ""],
        ),
        ("col('s').str.strip('xé')", {"s": texts("xéaxbéx", " x", "éé")}, ["axb", " ", ""]),
    ),
    *of(
        "str.starts_with",
        ("col('s').str.starts_with('a.')", {"s": texts("a.b", "abc", "", None)}, [True, False, False, None]),
        ("col('s').str.ends_with('%_')", {"s": texts("50%_", "50%x")}, [True, False]),
        ("col('s').str.starts_with('')", {"s": texts("", "a")}, [True, True]),
    ),
    *of(
        "str.contains",
        (
            "col('s').str.contains('^a.c$')",
            {"s": texts("abc", "a\nc", "abc\n", "xabc", None)},
            [True, False, False, False, None],
        ),
        (
            r"col('s').str.contains('\\bcat\\b')",
            {"s": texts("a cat.", "cats", "écat", "cat_")},
            [True, False, True, False],
        ),
        (
            r"col('s').str.contains('^\\s$')",
            {"s": texts(" ", "\t", "\v", "\xa0", "\f")},
            [True, True, False, False, True],
        ),
        (r"col('s').str.contains('^[\\w-]+$')", {"s": texts("a-b_1", "é", "a b")}, [True, False, False]),
        (r"col('s').str.contains('^\\d+$')", {"s": texts("12", "٣")}, [True, False]),
        (r"col('s').str.contains('^\\p{Lu}\\p{L}*$')", {"s": texts("Été", "été", "A1")}, [True, False, False]),
        ("col('s').str.contains('[[&~]')", {"s": texts("[", "&", "~", "a")}, [True, True, True, False]),
        (
            "col('s').str.contains('^(?:ab|c){2,3}$')",
            {"s": texts("abc", "c", "cccc", "ababab")},
            [True, False, False, True],
        ),
        ("col('s').str.contains('(?s)a.b')", {"s": texts("a\nb", "a\u2028b")}, [True, True]),
        ("col('s').str.contains('a.b')", {"s": texts("a\nb", "a\rb", "a\u2028b", "a😀b")}, [False, True, True, True]),
        ("col('s').str.contains('.*', literal=True)", {"s": texts("a.*b", "ab")}, [True, False]),
        ("col('s').str.contains('', literal=True)", {"s": texts("", "a", None)}, [True, True, None]),
    ),
    *of(
        "str.replace_all",
        ("col('s').str.replace_all('[0-9]+', '#')", {"s": texts("a1b22", "", None)}, ["a#b#", "", None]),
        (r"col('s').str.replace_all('(a)b', '$1\\1')", {"s": texts("abab-a")}, ["$1\\1$1\\1-a"]),
        ("col('s').str.replace_all('aa', 'a')", {"s": texts("aaaaa")}, ["aaa"]),
        ("col('s').str.replace_all('.', '$0', literal=True)", {"s": texts("1.2.", "12")}, ["1$02$0", "12"]),
    ),
    *of(
        "str.extract",
        ("col('s').str.extract('k=([^;]*)')", {"s": texts("k=v;k=w", "k=", "v", None)}, ["v", "", None, None]),
        ("col('s').str.extract('a+', 0)", {"s": texts("baab", "b")}, ["aa", None]),
        (r"col('s').str.extract('(\\d+)-(?P<last>\\d+)', 2)", {"s": texts("1-22", "x 3-4-5")}, ["22", "4"]),
        ("col('s').str.extract('(a)|(b)', 1)", {"s": texts("a", "b", "c")}, ["a", "", None]),
        ("col('s').str.extract('(a|ab)(c|bcd)')", {"s": texts("abcd")}, ["a"]),
        ("col('s').str.extract('<(.+?)>')", {"s": texts("<a><b>")}, ["a"]),
    ),
    *of(
        "str.split",
        ("col('s').str.split(',')", {"s": texts("a,,b,", "", "a", None)}, [["a", "", "b", ""], [""], ["a"], None]),
        ("col('s').str.split('.*')", {"s": texts("a.*b", "ab")}, [["a", "b"], ["ab"]]),
    ),
    *of(
        "str.slice",
        ("col('s').str.slice(1, 2)", {"s": texts("né😀x", "ab", "a", "", None)}, ["é😀", "b", "", "", None]),
        ("col('s').str.slice(2)", {"s": texts("né😀x", "ab")}, ["😀x", ""]),
        ("col('s').str.slice(-2)", {"s": texts("né😀x", "a", "")}, ["😀x", "a", ""]),
        ("col('s').str.slice(-3, 2)", {"s": texts("né😀x", "abc", "ab", "a", "")}, ["é😀", "ab", "a", "", ""]),
        ("col('s').str.slice(-3, 9)", {"s": texts("né😀x", "ab")}, ["é😀x", "ab"]),
        ("col('s').str.slice(0, 0)", {"s": texts("ab", None)}, ["", None]),
        ("col('s').str.slice(-2147483647, 2147483646)", {"s": texts("ab")}, ["a"]),
        ("col('s').str.slice(2147483646, 2147483646)", {"s": texts("ab")}, [""]),
        ("col('k').str.slice(0, 1)", {"k": (pa.dictionary(pa.int32(), pa.string()), ["éa", None])}, ["é", None]),
    ),
    *of(
        "str.count",
        ("col('s').str.count('aa')", {"s": texts("aaaaa", "aba", "", None)}, [2, 0, 0, None]),
        ("col('s').str.count('.')", {"s": texts("1.2.", "12")}, [2, 0]),
        ("col('s').str.count('😀é')", {"s": texts("😀é😀é", "😀", "é😀")}, [2, 0, 0]),
    ),
    *of(
        "list.get",
        (
            "col('l').list.get(0)",
            {"l": (pa.list_(pa.int64()), [[1, 2], [], [None], None, [3]])},
            [1, None, None, None, 3],
        ),
        ("col('l').list.get(-2)", {"l": (pa.list_(pa.string()), [["a", "b", "c"], ["d"], None])}, ["b", None, None]),
        ("col('l').list.get(5)", {"l": (pa.large_list(pa.float64()), [[1.5], None])}, [None, None]),
        ("col('l').list.get(1)", {"l": (pa.list_(pa.int8(), 2), [[1, 2], None, [3, None]])}, [2, None, None]),
        (
            "col('l').list.get(-1).list.get(0)",
            {"l": (pa.list_(pa.list_(pa.string())), [[["a"], ["b", "c"]], [[]], [None], []])},
            ["b", None, None, None],
        ),
        ("col('s').str.split(',').list.get(1)", {"s": texts("a,b,c", "a", None)}, ["b", None, None]),
    ),
    *of(
        "struct.field",
        (
            "col('s').struct.field('a')",
            {"s": (pa.struct({"a": pa.int64(), "b.c": pa.string()}), [{"a": 1, "b.c": "x"}, {"b.c": "y"}, None])},
            [1, None, None],
        ),
        (
            "col('s').struct.field('b.c').str.upper()",
            {"s": (pa.struct({"a": pa.int64(), "b.c": pa.string()}), [{"a": 1, "b.c": "x"}, None])},
            ["X", None],
        ),
        (
            "col('s').struct.field('l').list.get(0).struct.field('x')",
            {"s": (pa.struct({"l": pa.list_(pa.struct({"x": pa.int8()}))}), [{"l": [{"x": 7}]}, {"l": []}, None])},
            [7, None, None],
        ),
    ),
    *of(
        "concat_str",
        ("concat_str([col('a'), col('b')])", {"a": texts("x", None, ""), "b": texts("y", "z", "")}, ["xy", None, ""]),
        ("concat_str([col('a'), 'b', col('a')], separator='-')", {"a": texts("x", "")}, ["x-b-x", "-b-"]),
        ("concat_str([col('n').cast('string'), '%'])", {"n": ints(5)}, ["5%"]),
    ),
]
