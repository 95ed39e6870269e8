"""Hessians of density-fitted energies.

E = 1/2 g^T V^-1 g with V_PQ = (P|Q), and g_P = sum_ij (ij|P) D_ij for the Coulomb energy. The exchange energy is a sum
of such terms over pairs of occupied orbitals. With c = V^-1 g, g^A and V^A the derivatives by the position of atom A
at a constant density, and u^A = g^A - V^A c, the second derivatives are

    E^AB = g^AB c - 1/2 c^T V^AB c + u^A V^-1 u^B

The first two terms have the weights of the integrals' derivatives in the gradient (constant_weights.py). The last one
needs first derivatives of integrals only (energy.py), as do derivatives of the Fock matrix (fock.py).

Reference: Bykov et al., Mol. Phys. 113, 1961 (2015).
"""
