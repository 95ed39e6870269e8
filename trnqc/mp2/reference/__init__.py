"""From a geometry to the orbitals that are correlated.

    molecule: xyz file or name -> Geometry -> PySCF's Mole -> hartree_fock: RHF -> orbitals: active, frozen

xyz reads geometry files; ranks has the SCF of a job of several processes.
"""
