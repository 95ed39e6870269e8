"""Analytic gradients of DF-MP2 on density-fitted and on conventional Hartree-Fock.

density.relax: relaxed density, Γ -> energy_weighted: effective densities -> terms: contracted with derivatives
    -> gradients: their sum, with PySCF's interface
"""

from trnqc.mp2.gradient.gradients import Gradients

__all__ = ["Gradients"]
