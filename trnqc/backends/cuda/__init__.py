"""NVIDIA GPUs: MP2 by cuBLAS and generated programs, and the devices of the integrals and tensor products."""
