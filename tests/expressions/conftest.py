"""Property tests are not timed: the first call of a kernel loads it."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
