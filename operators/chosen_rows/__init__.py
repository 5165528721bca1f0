"""Rows chosen per key: the first one (``unique``), and the best ones by an order (``top``)."""
