"""Two checkouts of this library beside each other: what a change costs, or saves, job by job.

``python -m benchmarks.versions ../other --help`` says what can be chosen. ``late_rows`` is a job of its own, in which
many rows are late; ``measuring`` runs everything in turns, and ``report`` turns pairs into figures.
"""
