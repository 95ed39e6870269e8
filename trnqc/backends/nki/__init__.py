"""What both backends of NKI kernels share: `simulator` and `neuron` differ only in the device that runs a kernel."""
