"""The operators that only a batch has: they put rows into order, and call functions in that order."""
