"""Jobs on Spark: ours in envelopes beside Spark's own operators, in one command: ``python -m benchmarks.spark``."""
