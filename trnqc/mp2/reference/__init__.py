"""From a geometry to the correlated orbitals.

    molecule: xyz file or name -> Geometry -> PySCF's Mole -> hartree_fock: RHF -> orbitals: active, frozen

`xyz` reads geometry files, and `ranks` runs the SCF of a job of several processes.
"""
