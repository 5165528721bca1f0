"""The operators of joins: `join` with its kinds, and `join_asof`."""
