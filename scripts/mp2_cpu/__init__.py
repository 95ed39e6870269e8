"""Contestants of ``scripts.bench_mp2_cpu``."""
