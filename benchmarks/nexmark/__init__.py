"""Nexmark: a seeded generator of people, auctions and bids, and queries over them, compared with DuckDB.

``draws`` has the random values, ``generator`` the events, ``events`` their order, files and streams. ``queries`` has
the queries as functions of streams, ``sql`` the same for DuckDB, and ``answers`` compares both as whole tables.
"""
