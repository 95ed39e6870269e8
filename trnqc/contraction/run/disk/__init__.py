"""Contractions of arrays in HDF5 files.

operands, out ─ stored, by passes ─► datasets: tiles read and written ─ journal: progress ─► out
"""
