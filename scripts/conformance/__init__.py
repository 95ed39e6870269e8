"""Other people's published NKI kernels on the simulator, from local checkouts: ``python -m scripts.conformance``."""
