"""Tensors as strided views of storages in HBM, SBUF and PSUM; number formats; registers."""
