"""Six ordinary jobs over generated bids, run by this engine and by rivals, each measurement in a process of its own.

``python -m benchmarks.jobs --help`` says what can be chosen. ``bids`` makes the input, ``ours`` and ``rivals`` are the
jobs, ``child`` is one measurement, ``measuring`` arranges them in rounds, ``answers`` compares what came out, and
``report`` turns rounds into figures.
"""
