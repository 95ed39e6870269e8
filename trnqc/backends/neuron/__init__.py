"""NKI kernels on Trainium through torch-neuronx, by its native device if it has one, else by PyTorch/XLA."""
