"""The energy (T) of perturbative triples of closed-shell coupled cluster, within a limit of memory.

PySCF's CCSD, or arrays -> operands, padded -> products of each triple of occupied orbitals -> energy

energy        the formulas, the loop over triples on threads
amplitudes    what is read: amplitudes and integrals, checked and padded
memory        how many occupied orbitals are held at a time
products      connected triples as squares of matrices
programs      generated loops: operands of the products, their sums, the energy
"""

from trnqc.interfaces.triples.amplitudes import Operands
from trnqc.interfaces.triples.energy import rccsd_triples, triples_energy

__all__ = ["Operands", "rccsd_triples", "triples_energy"]
