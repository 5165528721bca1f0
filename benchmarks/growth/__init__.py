"""How cost grows: with rows, keys, the length of a chain, channels and checkpoints, as exponents of fitted power laws.

``python -m benchmarks.growth --help`` says what can be chosen. ``families`` has the sizes and goals, ``inputs`` writes
the rows, ``queries`` are the job and DuckDB's query, ``child`` is one measurement, ``endurance`` one long run whose
memory is watched, ``measuring`` arranges them in rounds, ``fit`` and ``report`` turn rounds into figures.
"""
