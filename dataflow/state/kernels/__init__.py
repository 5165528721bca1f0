"""The numba kernels of ``dataflow.state``. Importing one of these modules imports numba, so users import them late.

Every kernel is compiled for exactly one signature, which its decorator states: a fresh machine compiles as many times
as there are kernels. Inputs are declared read-only, because Arrow memory is; writable arrays are accepted as well.
"""
