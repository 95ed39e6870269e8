"""Tensors as strided views of storages in HBM, SBUF and PSUM; number formats; registers.

storage (`storage`) -> view (`tensor`, `indexing`, `access`, `dynamic`) -> array -> fp32 values and back (`values`)
"""
