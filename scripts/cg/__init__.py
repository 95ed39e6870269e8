"""Cases of ``scripts.bench_cg``: batches, convolutions, models, cold builds, and other libraries on GPUs."""
