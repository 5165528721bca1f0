"""The numba kernels under ``dataflow.state``. Importing one of these modules imports numba, so their users do it late.

Every kernel is compiled for exactly one signature, which is written at its head: the number of compilations on a fresh
machine is the number of kernels. Inputs are declared read-only, because Arrow memory is; writable arrays fit as well.
"""
