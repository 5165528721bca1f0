"""What operators with state have in common: times, numbers of windows, late rows, columns of the state, emission."""
