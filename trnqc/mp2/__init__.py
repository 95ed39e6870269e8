"""From a molecule to its MP2 energy.

    Job -> molecule -> RHF -> active orbitals, auxiliary basis -> Factors B[i, a, Q] -> PairStep -> MP2Result

execution    how a job runs (backend, precision, threads, bytes, ranks), chosen once
reference/   geometry, molecule, RHF, the orbitals that are correlated
factors/     the fitted three-index integrals: in memory, on disk, or spread over ranks
pairs/       pair energies on a backend, and the error of its precision
assembly     the result, put together from all parts; `result` is its form in memory and in JSON
jobs/        the job of the command line, and the checkpoint from which it goes on
dfmp2        the method object with PySCF's interface
energy       `mp2_energy` for factors that the caller has

Inside, energies are Hartree and lengths Bohr, memory is in bytes and threads are a number; Angstrom, MB and None are
converted where a caller gives them.
"""
