"""Cases of ``scripts.jobs.bench_ranks`` and ``scripts.bench_scaling``; events for ``scripts.model.project_ranks``."""
