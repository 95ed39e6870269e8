"""Contestants and cases of ``scripts.bench_sparse``."""
