"""Aggregates with a kernel of their own, one file an idea; ``operators.layout`` gives them their words of a record."""
