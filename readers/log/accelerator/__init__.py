"""The accelerator: the inner loops of a scan, compiled by numba (extra `fast`).

`kernels.py` of the folder above chooses between these loops and the reference path; both return the same rows.
"""
