"""Registers and spills of generated CUDA kernels, by nvcc's assembler; no GPU is needed."""
