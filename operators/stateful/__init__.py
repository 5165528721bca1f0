"""Parts that stateful operators share: times, windows by number, late rows, changes, stored columns, emission."""
