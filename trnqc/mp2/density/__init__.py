"""One-particle densities of MP2, unrelaxed and relaxed, for closed shells and for two spins.

    factors -> pair_sums: energies, P_ij, P_ab, Γ[i, a, Q] -> unrelaxed density -> natural orbitals
            -> lagrangian: derivative by the orbitals -> response: Z-vector -> relaxed density

sectors     which spins a pair has, and the weights of its amplitudes
sets        sets of orbitals whose pairs are computed together, and their memory
gamma       Γ of one spin, in memory or on disk
one_particle  the densities as a result, and their part by the amplitudes
relaxation  the relaxed density of canonical orbitals
density     the whole way
restricted_open  the same for ROHF references
natural     natural orbitals and frozen natural orbitals
"""
