"""NKI kernels on Trainium through torch-neuronx: native ("neuron" tensors) where it offers that, else PyTorch/XLA."""
