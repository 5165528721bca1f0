"""Aggregates with a kernel of their own, one file an idea; ``operators.layout`` assigns their words of a record."""
