"""MACE models evaluated by generated kernels, without PyTorch."""
