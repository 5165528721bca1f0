"""The numba kernels of the operators. Importing a module of this package imports numba, so their users do it late."""
