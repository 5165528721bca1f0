"""Peak resident memory of a real process does not grow with the input, with a slow sink either.

Arrow allocates from the system here: its default, mimalloc, keeps up to some 30 MiB of freed pages per process for
itself, more or less by chance, which would hide a leak of ours of that size.

The long ladder, both shapes at either pace, up to 16 times the rows with 16 times the waiting (about two minutes)::

    pytest tests/reality/test_memory.py -m soak -s
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reality.conftest import write_orders
from tests.reality.harness import spawn

SCRIPT = Path(__file__).with_name("weigh.py")


@pytest.mark.parametrize(("shape", "pace"), [("rows", "slow"), pytest.param("totals", "fast", marks=pytest.mark.soak)])
def test_four_times_the_rows_need_no_more_memory(tmp_path: Path, shape: str, pace: str) -> None:
    check({times: peak(tmp_path, times, 100_000, shape, pace) for times in (1, 4)})


@pytest.mark.soak
@pytest.mark.parametrize("pace", ["fast", "slow"])
@pytest.mark.parametrize("shape", ["rows", "totals"])
def test_sixteen_times_the_rows_need_no_more_memory(
    tmp_path: Path, shape: str, pace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    peaks = {times: peak(tmp_path, times, 400_000, shape, pace) for times in (1, 4, 16)}
    with capsys.disabled():
        print(f"\n{shape}, {pace}: " + ", ".join(f"{times}x {kib / 1024:.0f} MiB" for times, kib in peaks.items()))
    check(peaks)


def peak(tmp_path: Path, times: int, rows: int, shape: str, pace: str) -> int:
    """Peak resident KiB of a process over ``times`` * ``rows`` rows, in row groups of 25,000."""
    orders = write_orders(tmp_path / f"orders-{times}", files=2, groups=times * rows // 50_000, rows=25_000)
    (work := tmp_path / f"work-{times}").mkdir()
    process = spawn(orders, work, shape, pace, script=SCRIPT, ARROW_DEFAULT_MEMORY_POOL="system")
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return int(out)


def check(peaks: dict[int, int]) -> None:
    """All within a tenth of the smallest."""
    assert max(peaks.values()) < 1.1 * min(peaks.values()), peaks
