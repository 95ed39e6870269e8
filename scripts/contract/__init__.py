"""Cases of ``scripts.bench_contract``: memory limits, files, tile sizes and their order."""
