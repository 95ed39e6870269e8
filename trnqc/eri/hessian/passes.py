"""The kinds of passes over integrals (i'v|cd) in a Hessian, where i' is a function of the derivative basis.

The derivative by atom A needs the sums over the functions i' of A alone. All bra pairs of a call therefore belong to
one atom, and what they contribute goes to matrices of this atom. Three passes differ in their pairs and sums:

  fock   (i'v|cd), c and d functions of the molecule: derivatives of the Fock matrix at a constant density
           j_atom[x, cd] = sum W_x[i'v] (i'v|cd),   k_atom[x, v, d] = sum_i'c P_x[i'c] (i'v|cd), and alike for c
  bra    (i'v|cd), v a function of the derivative basis: second derivatives with both on one side
           j_pair[i'v] = sum_cd (i'v|cd) D[cd],     k_atom as above
  cross  (i'v|cd), c (or d) a function of the derivative basis: second derivatives with one on each side
           j_atom,   k_atom[x, v, c] = sum_i'd P_x[i'd] (i'v|cd),   k_pair[i'c] = sum_vd D[vd] (i'v|cd)
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class HessianPass:
    """A kind of pass: which sums it makes, and which ket functions, of "cd", are the columns of `k_atom`."""

    name: str
    columns: str
    j_pair: bool = False
    j_atom: bool = False
    k_pair: bool = False


FOCK = HessianPass("fock", "cd", j_atom=True)
ONE_SIDE = HessianPass("bra", "cd", j_pair=True)
# The function of the derivative basis is c, or d in a class of pairs that are swapped.
CROSS = HessianPass("cross", "c", j_atom=True, k_pair=True)
CROSS_SWAPPED = HessianPass("cross_swapped", "d", j_atom=True, k_pair=True)
