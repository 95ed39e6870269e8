"""Convolutions of mode uvu by the NKI kernels: blocks of paths, and the engine that launches them."""
