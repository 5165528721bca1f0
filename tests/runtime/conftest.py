"""Loops that jobs compile here are kept where those of their own tests are."""

from __future__ import annotations

from tests.operators.fusion.conftest import _kept_loops  # noqa: F401
