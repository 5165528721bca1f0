"""A run of filters and projections as one generated loop, compiled by numba and cached on disk.

``statements`` turns expressions into statements, ``source`` a run of nodes into a module, ``cache`` stores modules as
files, ``kernel`` loads them in the background, ``operator`` calls them with batches. Importing this package does not
import numba.
"""
