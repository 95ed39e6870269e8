"""From a geometry, and from the orbitals of a reference, to what is correlated.

xyz file or name -> molecule: Geometry -> PySCF's Mole
reference -> orbitals: active, frozen -> spins: all orbitals of a spin
"""
