"""Interfaces to other programs, and calculations that consist of several energies.

    molecule of another program -> Job -> mp2_object -> energy, dipole, gradient -> result of the other program
    molecule -> several energies -> counterpoise, extrapolation, frames, geometry optimisation

method          the DF-MP2 object that the interfaces share
energy          Hartree-Fock and correlation energies that add and subtract
counterpoise    interaction energies with and without the correction of Boys and Bernardi
extrapolation   the limit of a complete basis set from two basis sets
frames          the jobs of an xyz file with several frames, and their results in one file
extxyz          energies and forces in extended xyz files
packages        import of optional packages, with one error if they are absent

Every module can be used without the others. Optional packages are imported when they are first needed.
"""
