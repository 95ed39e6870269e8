"""PySCF's objects with our kernels in the place of its own.

an SCF object -> `accelerate` -> the same class with J and K, quadratures, gradients and Hessians of `trnqc.eri` and
`trnqc.xc` -> the same energies, faster
"""
