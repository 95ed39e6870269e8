"""Common parts of the backends `simulator` and `neuron`, which differ only in the device that runs NKI kernels."""
