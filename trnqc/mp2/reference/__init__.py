"""From a geometry to the Hartree-Fock reference and the orbitals that are correlated."""
