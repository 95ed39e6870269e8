"""Double-hybrid functionals: density functionals with a part of the MP2 correlation energy.

    name -> Recipe -> Kohn-Sham SCF -> energy of its density with the final functional
                                    -> DF-MP2 of its orbitals, dispersion -> DoubleHybridResult

recipes         the functionals, each stated once with its source
expansion       functionals that are power series in the density's gradient and kinetic energy, such as wB97M(2)
dispersion      D3 and D4 by the pyscf-dispersion package
gradient        relaxed densities and analytic gradients
kohn_sham       the SCF: made for a molecule, or checked; the energy of its density with another functional
double_hybrid   the method object
"""
