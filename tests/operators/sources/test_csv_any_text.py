"""CSV with anything in it, some rows of it wrong: what was written well is read, and nothing else."""

from __future__ import annotations

import csv
import io
import tempfile
from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from operators import read_csv
from tests.operators.reading import check_every_position, rejected_of, rows_of
from tests.seeds import part_of_the_examples

GOOD = {"1": 1, "-20": -20, " 3": 3, "": None}
BAD = ["x", "1.5", '"', "99999999999999999999", "\n"]
TEXT = st.text(alphabet='ab,"\n\r é☃', max_size=6)

ROW = st.tuples(st.sampled_from([*GOOD, *GOOD, *GOOD, *BAD]), TEXT, st.sampled_from([0, 0, 0, 0, -1, 1]))


@part_of_the_examples(4)
@given(
    rows=st.lists(ROW, max_size=25),
    block_bytes=st.sampled_from([1, 13, 60, 1 << 16]),
    ending=st.sampled_from(["\n", "\r\n"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC]),
)
def test_good_rows_are_read_and_bad_ones_set_aside_with_their_lines(
    rows: list[tuple[str, str, int]], block_bytes: int, ending: str, quoting: int
) -> None:
    text = io.StringIO(newline="")
    out = csv.writer(text, quoting=quoting, lineterminator=ending)
    out.writerow(["i", "s"])
    good: list[dict[str, object]] = []
    bad: list[int] = []
    for number, drawn, fields in rows:
        words = drawn if quoting == csv.QUOTE_NONNUMERIC else drawn.replace("\r", "")  # which Python leaves unquoted
        line = 1 + text.getvalue().count("\n")
        quoted = quoting == csv.QUOTE_NONNUMERIC  # the empty number too, which is null all the same
        out.writerow([number, words, "more"][: 2 + fields])
        if fields == 0 and number in GOOD:
            good.append({"i": GOOD[number], "s": words if words or quoted else None})
        else:
            bad.append(line)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.csv")
        path.write_bytes(text.getvalue().encode())
        schema = pa.schema({"i": pa.int64(), "s": pa.string()})
        source = read_csv(path, schema=schema, on_error="side", block_bytes=block_bytes)
        assert rows_of(source) == good
        assert [int(str(row["where"]).rpartition(":")[2]) for row in rejected_of(source)] == bad
        check_every_position(source, cuts=(2,))
