"""Mean-field objects of PySCF with J, K, integrals and gradients of this package."""
