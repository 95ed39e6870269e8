"""Tensor products and convolutions on GPUs: phases of a warp, their memory, and launches."""
