"""The matrices of an SCF in the memory of one GPU: potential, extrapolation, orbitals and density."""
