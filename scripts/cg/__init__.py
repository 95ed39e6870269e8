"""Cases of ``scripts.bench_cg``: batches, convolutions, models, cold builds, and peers by their interfaces."""
