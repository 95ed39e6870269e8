"""Jobs and figures of `bench_scf.py`."""
