"""Cases of `bench_mace`."""
