"""Aggregates with a kernel of their own. ``operators.aggregation.layout`` assigns the words of a record to them."""
