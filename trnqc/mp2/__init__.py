"""From a molecule to its MP2 energy.

    Job -> molecule -> RHF -> active orbitals, auxiliary basis -> Factors B[i, a, Q] -> PairStep -> MP2Result

execution    how a job runs (backend, precision, threads, bytes, ranks); it is chosen once
reference/   geometry, molecule and the correlated orbitals
scf/         the Hartree-Fock reference, on one rank or several
factors/     the fitted three-index integrals in memory, on disk or spread over ranks
storage/     arrays that a job keeps on disk
partition/   blocks of pairs, and their distribution over ranks
pairs/       pair energies on a backend, and the estimated error of its precision
assembly     builds the result from its parts, which `result_parts` defines
result       the result in memory and in JSON
jobs/        the job of the command line and its checkpoint
dfmp2        the method object with PySCF's interface, with `dfmp2_energies`, `dfmp2_densities` and `scanner`
amplitudes   all amplitudes in memory, on request
energy       `mp2_energy` for the caller's own factors

Inside this package energies are in Hartree, lengths in Bohr and memory in bytes. Public functions convert Angstrom and
MB, and replace None by defaults.
"""
