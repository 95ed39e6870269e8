"""From a molecule to its MP2 energy.

    xyz or name -> molecule -> RHF -> auxiliary basis, orbital windows -> factors B[i, a, Q] -> pairs on a backend ->
    MP2Result

Each arrow is a module: molecule, reference, auxbasis and frozen, factors (memory, metric), pairs (accuracy), result.
``dfmp2`` puts them behind PySCF's method-object interface, ``job`` behind the command line. Hartree and Bohr inside,
Angstrom at the door.
"""
