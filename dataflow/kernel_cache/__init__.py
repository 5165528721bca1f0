"""The cache of compiled loops: where its files are, how a loop is stored, and how missing ones are compiled.

There is one mechanism for every loop that is stored: the kernels of this library, and the loops that it generates for
filters and projections. ``folders`` says where files are, ``decorator`` loads or compiles a loop, ``two_processes``
compiles the missing loops of several modules.
"""
