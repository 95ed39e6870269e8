"""Tensor products and convolutions on the CPU: loops over edges around the programs of paths, compiled to C."""
