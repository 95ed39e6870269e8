"""Interfaces to other programs, and calculations that consist of several energies.

    molecule of another program -> Job -> mp2.run.method_of -> energy, dipole, gradient -> result of the other program
    molecule -> several energies -> counterpoise, extrapolation, geometry optimisation

method          the DF-MP2 object that the interfaces share
energy          Hartree-Fock and correlation energies that add and subtract
counterpoise    interaction energies with and without the correction of Boys and Bernardi
extrapolation   the limit of a complete basis set from two basis sets
continuing      orbitals and extrapolation of coupled cluster that continues from a checkpoint
triples         the energy (T) of coupled cluster, from PySCF's CCSD
optimization    geometry optimisation by geomeTRIC; optimization_page draws its steps
extxyz          energies and forces in extended xyz files
ase             a calculator of ASE
qcschema        QCSchema in and out; qcengine is the same as a program of QCEngine
packages        import of optional packages, with one error if they are absent

Every module can be used without the others. Optional packages are imported when they are first needed.
"""
