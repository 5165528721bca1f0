"""Ways to run a ``ProcessGraph``, all of them on one ``Host`` a process."""
