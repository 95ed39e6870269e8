"""Examples, run from the root of a checkout: ``python -m examples.cp_als``."""
