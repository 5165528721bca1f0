"""A run of filters and projections as one generated loop, compiled by numba and kept on disk.

``statements`` turns expressions into statements, ``source`` a run of nodes into a module, ``cache`` keeps modules as
files, ``kernel`` loads them without holding anybody up, ``operator`` gives them batches. Importing this package does
not import numba.
"""
