"""Density fitting: three-centre integrals by our kernels, J and K by large matrix products, also over ranks."""
