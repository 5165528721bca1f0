"""Checkpoint modes compared on one pipeline: what each costs, and whether each keeps what it promises.

``subject`` finds the pipeline and turns its sinks aside, ``trial`` is one run of it, ``killing`` ends its process at
the chosen moment, ``claims`` reads off the graph what can be compared, ``rows`` compares, ``verdict`` judges,
``comparing`` joins them and ``report`` prints what came out. The demo is its first user.
"""
