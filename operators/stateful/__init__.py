"""What stateful operators share: times, numbers of windows, late rows, changes, columns of the state, emission."""
