"""trnqc: the expensive steps of quantum chemistry and atomistic machine learning, fast on accelerators and laptops."""

__version__ = "0.1.0.dev0"
