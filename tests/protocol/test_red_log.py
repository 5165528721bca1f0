"""The log of red rows alone: what a sample keeps, what is only counted, and what is let go."""

from __future__ import annotations

from dataflow.protocol.events import Data
from dataflow.protocol.red_log import Omitted, RedLog


def red(rows: str, epoch: int = 1) -> Data:
    return Data(rows, epoch)


def sampled(rows: int, *taken: tuple[str, Data]) -> RedLog[str]:
    log: RedLog[str] = RedLog(sample=rows)
    for key, data in taken:
        log.record(key, data)
    return log


def test_a_sample_keeps_batches_until_it_has_its_rows_and_counts_the_rest() -> None:
    log = sampled(3, ("a", red("xy")), ("a", red("zuv")), ("a", red("w")), ("a", red("st")))
    assert log.take(1) == {"a": (red("xy"), red("zuv"), Data(Omitted(1), 1), Data(Omitted(2), 1))}


def test_a_sample_that_has_its_rows_exactly_takes_no_more() -> None:
    assert sampled(2, ("a", red("xy")), ("a", red("z"))).take(1) == {"a": (red("xy"), Data(Omitted(1), 1))}


def test_a_sample_of_one_row_keeps_the_first() -> None:
    assert sampled(1, ("a", red("x")), ("a", red("y"))).take(1) == {"a": (red("x"), Data(Omitted(1), 1))}


def test_each_key_and_each_epoch_has_a_sample_of_its_own() -> None:
    log = sampled(1, ("a", red("x")), ("b", red("y")), ("a", red("z", 2)), ("b", red("u", 2)))
    assert log.take(1) == {"a": (red("x"), red("z", 2)), "b": (red("y"), red("u", 2))}


def test_without_a_sample_all_rows_are_kept() -> None:
    log: RedLog[str] = RedLog()
    for row in "xyz":
        log.record("a", red(row))
    assert log.take(1) == {"a": (red("x"), red("y"), red("z"))}


def test_rows_below_the_floor_are_not_kept_and_use_no_sample_up() -> None:
    log = sampled(1, ("a", red("white", 0)))
    log.forget(3)
    log.record("a", red("old", 2))
    assert (log._rows, log._held, log.take(3)) == ({}, {}, {})


def test_the_floor_never_falls() -> None:
    log: RedLog[str] = RedLog()
    log.forget(3)
    log.forget(2)
    log.record("a", red("x", 2))
    assert (log.floor, log.take(1)) == (3, {})


def test_forgetting_keeps_what_is_at_the_floor_with_its_sample() -> None:
    log = sampled(1, ("a", red("x", 1)), ("a", red("y", 2)))
    log.forget(2)
    log.record("a", red("z", 2))
    assert log.take(2) == {"a": (red("y", 2), Data(Omitted(1), 2))}


def test_after_a_report_the_samples_it_used_are_gone_too() -> None:
    log = sampled(1, ("a", red("x", 1)), ("a", red("y", 2)))
    log.take(1)
    assert log._held == {("a", 2): 1}


def test_rows_are_red_for_every_checkpoint_up_to_their_epoch() -> None:
    log = sampled(9, ("a", red("x", 1)), ("a", red("y", 3)), ("b", red("z", 3)))
    assert [log.red("a", n) for n in (1, 2, 3, 4)] == [2, 1, 1, 0]
    assert log.red("c", 1) == 0


def test_keys_without_red_rows_are_absent_from_a_report() -> None:
    assert sampled(9, ("a", red("x", 1)), ("b", red("y", 2))).take(2) == {"b": (red("y", 2),)}


def test_omitted_rows_are_counted() -> None:
    assert len(Omitted(7)) == 7
