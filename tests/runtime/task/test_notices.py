"""Notices: one warning a category, whichever thread or process the events were in."""

from __future__ import annotations

from dataflow.errors import BarrierflowWarning, CleanupFailedWarning, InputMissingWarning
from dataflow.runtime.task.notices import Notices


def test_a_text_that_comes_again_is_told_once_with_its_number() -> None:
    notices = Notices()
    for text in ("a", "b", "a"):
        notices.add(InputMissingWarning, text)
    assert [str(warning) for warning in notices.warnings()] == ["3 times: a; b"]


def test_notices_of_several_processes_are_added_up() -> None:
    here, there = Notices(), Notices()
    here.add(CleanupFailedWarning, "here")
    for number in range(7):
        there.add(CleanupFailedWarning, f"there {number}")
    there.add(InputMissingWarning, "gone")
    here.include(there.packed())
    found = [(type(warning), str(warning)) for warning in here.warnings()]
    assert found == [
        (CleanupFailedWarning, "8 times: here; there 0; there 1; there 2; there 3; ..."),
        (InputMissingWarning, "gone"),
    ]


def test_a_category_that_is_not_known_here_is_told_in_the_text() -> None:
    notices = Notices()
    notices.include([("script.OwnWarning", 1, ["strange"])])
    assert [(type(w), str(w)) for w in notices.warnings()] == [(BarrierflowWarning, "script.OwnWarning: strange")]
