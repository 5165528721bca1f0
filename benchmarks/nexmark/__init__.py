"""Nexmark: a seeded generator of people, auctions and bids, and queries over them, compared with DuckDB as whole tables."""
