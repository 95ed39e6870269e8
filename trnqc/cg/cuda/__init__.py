"""Tensor products and convolutions on GPUs: the plan of a kernel, its program, its memory, and launches."""
