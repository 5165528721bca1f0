"""Hypothesis profiles: ``HYPOTHESIS_PROFILE=thorough`` for a long look, else the quick one."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("quick", max_examples=100, deadline=None)
settings.register_profile("thorough", max_examples=5_000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
