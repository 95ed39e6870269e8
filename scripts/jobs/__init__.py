"""Cases of ``scripts.bench_ranks`` and ``scripts.bench_scaling``; events for ``scripts.model.project_ranks``."""
