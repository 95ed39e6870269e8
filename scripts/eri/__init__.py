"""Cases of ``scripts.bench_eri`` and ``scripts.bench_first_use``."""
