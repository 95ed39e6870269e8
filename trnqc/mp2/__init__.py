"""From a molecule to its MP2 energy.

    Job -> molecule -> SCF -> DFMP2 -> Correlation (orbitals, fitting functions) -> Factors B[i, a, Q] -> PairStep
        -> MP2Result

job          all settings of a job, and what follows from them
run          a job as a method object, and its result
driver       the one way from the orbitals to factors, pair energies and densities
execution    how a job runs (backend, precision, threads, bytes, ranks); it is chosen once
reference/   geometry, molecule and the correlated orbitals
scf/         the Hartree-Fock reference, on one rank or several
factors/     the fitted three-index integrals in memory, on disk or spread over ranks
store        arrays and records that a job keeps on disk
partition/   blocks of pairs, and their distribution over ranks
pairs/       pair energies on a backend, and the estimated error of its precision
assembly     builds the result from its parts, which `result_parts` defines
result       the result in memory and in JSON
checkpoint   a directory from which an interrupted job continues
dfmp2        the method object with PySCF's interface, and its `scanner`
amplitudes   all amplitudes in memory, on request
energy       `mp2_energy` for the caller's own factors

Inside this package energies are in Hartree, lengths in Bohr and memory in bytes. Public functions convert Angstrom and
MB, and replace None by defaults.
"""
