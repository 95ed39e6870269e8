"""Cases for ``scripts/sim_conformance.py``: other people's published NKI kernels, run from local checkouts."""
