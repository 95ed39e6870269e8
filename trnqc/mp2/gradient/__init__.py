"""Analytic gradients of DF-MP2 on density-fitted and on conventional Hartree-Fock.

density.relax: relaxed density, Γ -> terms: effective densities, contracted with derivatives
    -> gradients: their sum, with PySCF's interface
"""

from trnqc.mp2.gradient.gradients import Gradients

__all__ = ["Gradients"]
