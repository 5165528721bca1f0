"""Compare checkpoint modes on one pipeline: the cost of each, and whether each keeps its guarantee.

``subject`` imports the pipeline and replaces its sinks, ``trial`` is one run of it, ``killing`` kills its process at
the chosen moment, ``claims`` derives from the graph how outputs are compared, ``rows`` compares tables, ``verdict``
judges the output of a restore, ``comparing`` runs all of that, ``phases`` has the sentences printed before each phase,
``mode_report`` and ``report`` hold the results, and ``closing`` puts them into words. The demo is its first user.
"""
