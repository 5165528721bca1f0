"""Colours: legible in both schemes (WCAG 2.2, success criterion 1.4.3), and never the only sign."""

from __future__ import annotations

import pytest

from dataflow.drawing.palette import CAUSES, DARK, LIGHT, Cause, Paint, Scheme, hatching, series, style_sheet

BARS = ("blocked", "work", "held", "full", "waiting", "barrier", "state", "stored", "manifest")
"""Causes that one picture shows as bars."""


def channels(colour: str) -> list[float]:
    return [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]


def contrast(one: list[float], other: list[float]) -> float:
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def luminance(colour: list[float]) -> float:
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in colour]
    return sum([share * each for share, each in zip((0.2126, 0.7152, 0.0722), linear, strict=True)])


def hatched(paint: Paint) -> list[float]:
    line, opacity = hatching(paint.text)
    return [a + (b - a) * opacity for a, b in zip(channels(paint.fill), channels(line), strict=True)]


@pytest.mark.parametrize("scheme", [LIGHT, DARK])
def test_texts_are_legible_on_pages_panels_and_bars(scheme: Scheme) -> None:
    grounds = [channels(scheme.page), channels(scheme.panel)]
    for colour in (scheme.ink, scheme.soft):
        assert min([contrast(channels(colour), ground) for ground in grounds]) >= 4.5
    for name, cause in (CAUSES | series("cut")).items():
        paint = cause.light if scheme is LIGHT else cause.dark
        assert min([contrast(channels(paint.word), ground) for ground in grounds]) >= 4.5, name
        bar = [channels(paint.fill)] + [hatched(paint)] * bool(cause.pattern)
        assert min([contrast(channels(paint.text), ground) for ground in bar]) >= 4.5, name


def test_bars_that_look_alike_without_colours_differ_in_pattern_or_lightness() -> None:
    def sign(cause: Cause) -> tuple[str, bool]:
        return cause.pattern, cause.light.text == "#ffffff"

    signs = [sign(CAUSES[name]) for name in BARS]
    assert len(set(signs)) == len(signs)


def test_a_style_sheet_speaks_only_of_its_picture_and_uses_no_variables() -> None:
    sheet = style_sheet("chart", "chart-1", [*CAUSES.values(), *series("cut").values()], [14])
    rules = [line.rpartition("{")[0] for line in sheet.splitlines() if line.endswith("}") and line != "}"]
    assert all([part.startswith((".chart ", ".chart.chart-1 ")) for rule in rules for part in rule.split(",")])
    assert "var(" not in sheet
    assert "--" not in sheet


def test_a_later_picture_of_a_page_does_not_take_the_patterns_of_an_earlier_one() -> None:
    first = style_sheet("chart", "chart-1", CAUSES.values(), [])
    assert ".chart.chart-1 rect.blocked,.chart.chart-1 circle.blocked" in first, (
        "more specific than .chart rect.blocked"
    )
