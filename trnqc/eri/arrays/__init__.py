"""Integrals as arrays: kernels that write each integral to its place, and the tasks that fill an array."""
