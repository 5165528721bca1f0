"""The cost of checkpoints: the evaluation of the ABS paper, one factor at a time around a centre.

Carbone et al., "Lightweight Asynchronous Snapshots for Distributed Dataflows" (2015), compare a job without snapshots,
with synchronous ones and with theirs. ``python -m benchmarks.checkpoints --help`` says what can be chosen. ``settings``
has the variants and factors, ``job`` the pipeline, ``gate`` and ``halting`` the stop-the-world snapshot, ``child`` is
one measurement, ``measuring`` arranges them in rounds, ``report`` turns rounds into figures.
"""
