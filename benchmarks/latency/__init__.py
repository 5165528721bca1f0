"""Latency of rows that arrive at a constant rate, the cost of small batches, and that of an idle job."""
