"""The set of names that were read: what it keeps and stores when names go and come."""

from __future__ import annotations

from operators.sources.name_set import NameSet, hashes_of


def of(*names: str) -> NameSet:
    found = NameSet()
    for name in names:
        found.add(name)
    return found


def test_a_name_that_is_dropped_is_no_longer_stored() -> None:
    names = of("a", "b")
    before = names.stored
    names.retain(hashes_of(["b", "c"]))
    assert before == of("a", "b").stored
    assert names.stored == of("b").stored


def test_what_is_stored_is_encoded_anew_only_if_the_set_changed() -> None:
    names = of("a", "b")
    before = names.stored
    names.retain(hashes_of(["b", "a"]))
    assert names.stored is before
