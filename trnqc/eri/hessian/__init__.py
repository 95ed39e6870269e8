"""Second derivatives of energies: two-electron terms by generated kernels, and what a coupled-perturbed SCF needs."""
