"""Lookups: rows joined with the rows of a table that is read once."""
