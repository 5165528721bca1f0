"""Pictures of pipelines in Chromium: texts hold in any font and scheme, and nothing is requested."""

from __future__ import annotations

import pytest

from dataflow.views.picture import Picture
from tests.drawing.browser import Browser
from tests.views.pipeline.sketches import golden_pictures, random_sketch
from tests.views.pipeline.test_pipeline_svg import hostile_sketches


@pytest.mark.extended
def test_pictures_of_pipelines_hold_in_any_font_and_request_nothing(browser: Browser) -> None:
    sketches = hostile_sketches() + [random_sketch(seed, circles=True) for seed in range(5)]
    for picture in [*golden_pictures().values(), *map(Picture, sketches)]:
        for form in (picture.svg(), picture.html(), picture._repr_html_()):
            assert browser.problems(form) == [], picture.text().splitlines()[0]
