"""The cost of checkpoints of keyed state: bases and deltas, restores, and what is left of a job's speed."""
