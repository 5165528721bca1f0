"""The numba kernels of the operators. Importing a module of this package imports numba, so import it on first use."""
