"""Closed-shell pair energies of fitted integrals, which backends compute in one fused kernel.

    E = sum_iajb (ia|jb) [c1 (ia|jb) + c2 (ib|ja)] / D_iajb
    (ia|jb) = sum_Q B_iaQ B_jbQ,  D_iajb = e_i + e_j - f_a - f_b

They are recognised in any names and orders of axes, through intermediates or written out, with any c1 and c2 (MP2: 2
and -1). Whether D is such a sum depends on its numbers, so it is checked when the arrays are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from trnqc.arrays import host_array
from trnqc.contraction.kernels import PairKernel
from trnqc.contraction.order.block_sparsity import has_blocks
from trnqc.contraction.order.expansion import expanded
from trnqc.errors import InputError, MemoryLimit
from trnqc.expression.program import Program
from trnqc.expression.terms import Factor, Term
from trnqc.types import PairEnergies

# Most statements of a program that is searched for pair energies.
MOST = 8
# Largest deviation of D from a sum, relative to its largest element, which allows for rounding of the sum.
ROUNDING = 1e-13


class OuterSum:
    """x0[i] + x1[j] + ... as a function of slices, for energy denominators that are never stored.

    ``OuterSum(eps_occ, -eps_vir, eps_occ, -eps_vir)`` is the operand of ``function D[o,v,o,v] cost 3`` in a program.

    Parameters
    ----------
    *vectors
        One vector for each axis.

    Raises
    ------
    InputError
        If an argument is not a vector.
    """

    def __init__(self, *vectors: Any) -> None:
        self.vectors = tuple(
            host_array(vector, f"vector {k} of an outer sum", "its blocks are NumPy arrays; take .detach()")
            for k, vector in enumerate(vectors)
        )
        if not vectors or any(vector.ndim != 1 for vector in self.vectors):
            raise InputError(f"an outer sum is of vectors; found shapes {[v.shape for v in self.vectors]}")

    def __call__(self, *cuts: slice) -> np.ndarray:
        parts = np.ix_(*(vector[cut] for vector, cut in zip(self.vectors, cuts, strict=True)))
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total


@dataclass(frozen=True)
class PairForm:
    """target = direct E_direct + exchange E_exchange, with B of the axes i, a, Q and D of the axes i, a, j, b."""

    target: str
    factor: str
    occupied: int
    virtual: int
    auxiliary: int
    denominator: str
    axes: tuple[int, int, int, int]
    direct: Fraction
    exchange: Fraction

    def __str__(self) -> str:
        b = ["", "", ""]
        b[self.occupied], b[self.virtual], b[self.auxiliary] = "i", "a", "Q"
        d = [letter for _, letter in sorted(zip(self.axes, "iajb"))]
        direct, exchange = Term(self.direct, (Factor("(ia|jb)^2", ()),)), Term(self.exchange, ())
        sign = "-" if self.exchange < 0 else "+"
        return (
            f"{self.target} is a sum of pair energies, {direct} {sign} {exchange} (ia|jb)(ib|ja), each over "
            f"{self.denominator}[{','.join(d)}], (ia|jb) from {self.factor}[{','.join(b)}]"
        )


def pair_forms(program: Program, outputs: Sequence[str]) -> tuple[PairForm, ...]:
    """Return the pair energy that each output is; none if one of the outputs is something else."""
    targets = {s.target.tensor: s.target for s in program.statements}
    if any(s.function for s in program.statements):
        return ()
    if len(program.statements) > MOST or has_blocks(program) or any(targets[name].labels for name in outputs):
        return ()
    if not any(f.reciprocal for s in program.statements for term in s.terms for f in term.factors):
        return ()
    plain = expanded(program, outputs)
    if {s.target.tensor for s in plain.statements} != set(outputs):
        return ()
    forms = [_form(plain, name) for name in outputs]
    return tuple(form for form in forms if form is not None) if None not in forms else ()


def _form(program: Program, target: str) -> PairForm | None:
    """Return the pair energy that a target is, None if it is not one."""
    mine = [s for s in program.statements if s.target.tensor == target]
    if mine[0].accumulate or not all(s.accumulate for s in mine[1:]):
        return None
    matches = [(_matched(term), term.coefficient) for s in mine for term in s.terms]
    shapes = {match[1:] if match else None for match, _ in matches}
    if len(shapes) != 1 or None in shapes:
        return None
    shape = shapes.pop()
    assert shape is not None
    factor, (occupied, virtual, auxiliary), denominator, axes = shape
    totals = {True: Fraction(0), False: Fraction(0)}
    for match, coefficient in matches:
        assert match is not None
        totals[match[0]] += coefficient
    direct, exchange = totals[True], totals[False]
    return PairForm(target, factor, occupied, virtual, auxiliary, denominator, axes, direct, exchange)


Match = tuple[bool, str, tuple[int, int, int], str, tuple[int, int, int, int]]


def _matched(term: Term) -> Match | None:
    """Return (whether direct, B, its axes, D, its axes) of a term of four B over one D; None for other terms."""
    below = [factor for factor in term.factors if factor.reciprocal]
    above = [factor for factor in term.factors if not factor.reciprocal]
    if len(below) != 1 or len(above) != 4 or len({factor.tensor for factor in above}) != 1:
        return None
    labels = below[0].labels
    if len(set(labels)) != 4 or len(labels) != 4 or any(len(set(factor.labels)) != 3 for factor in above):
        return None
    summed = [{k for k, label in enumerate(factor.labels) if label not in labels} for factor in above]
    if any(places != summed[0] or len(places) != 1 for places in summed):
        return None
    (auxiliary,) = summed[0]
    occupied, virtual = (k for k in range(3) if k != auxiliary)
    integrals = _integrals(above, occupied, virtual, auxiliary)
    if integrals is None:
        return None
    (i, a), (j, b) = sorted(integrals[0])
    if {i, j, a, b} != set(labels) or len({i, j}) != 2 or len({a, b}) != 2:
        return None
    if integrals[1] not in ({(i, a), (j, b)}, {(i, b), (j, a)}):
        return None
    axes = sorted((labels.index(i), labels.index(j))), sorted((labels.index(a), labels.index(b)))
    order = (axes[0][0], axes[1][0], axes[0][1], axes[1][1])
    direct = integrals[1] == integrals[0]
    return direct, above[0].tensor, (occupied, virtual, auxiliary), below[0].tensor, order


def _integrals(
    above: Sequence[Factor], occupied: int, virtual: int, auxiliary: int
) -> tuple[set[tuple[str, str]], set[tuple[str, str]]] | None:
    """Return the (occupied, virtual) labels of both integrals: pairs of factors that share their auxiliary label."""
    pairs_by_auxiliary: dict[str, set[tuple[str, str]]] = {}
    for factor in above:
        pair = factor.labels[occupied], factor.labels[virtual]
        pairs_by_auxiliary.setdefault(factor.labels[auxiliary], set()).add(pair)
    if len(pairs_by_auxiliary) != 2 or any(len(pairs) != 2 for pairs in pairs_by_auxiliary.values()):
        return None
    one, two = pairs_by_auxiliary.values()
    return one, two


def orbital_energies(form: PairForm, denominator: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Return (e, f) with D_iajb = e_i + e_j - f_a - f_b, up to a constant in both; None if D is not such a sum."""
    if isinstance(denominator, OuterSum):
        i, a, j, b = (denominator.vectors[axis] for axis in form.axes)
        return (i, -a) if np.array_equal(i, j) and np.array_equal(a, b) else None
    if callable(denominator):
        return None
    values = np.asarray(denominator).transpose(form.axes)
    if values.dtype != np.float64 or 0 in values.shape:
        return None
    half = np.einsum("iaia->ia", values) / 2
    e, f = half[:, 0], half[0, 0] - half[0]
    close = ROUNDING * np.abs(values).max() * 8
    if np.abs(half - (e[:, None] - f)).max() > close:
        return None
    if any(np.abs(rows - half[k, :, None, None] - half).max() > close for k, rows in enumerate(values)):
        return None
    return e, f


def pair_energies(
    forms: Sequence[PairForm], values: Mapping[str, Any], kernel: PairKernel, memory: int | None
) -> dict[str, float] | None:
    """Return the outputs from the kernel, or None if it does not apply.

    It does not apply to other element types, to a D that is not a sum of orbital energies, or if it needs more memory
    than `memory` bytes.
    """
    known: dict[tuple[Any, ...], PairEnergies] = {}
    results = {}
    for form in forms:
        key = (form.factor, form.occupied, form.virtual, form.auxiliary, form.denominator, form.axes)
        if key not in known:
            energies = _run(form, values, kernel, memory)
            if energies is None:
                return None
            known[key] = energies
        direct = float(known[key].os.sum())
        results[form.target] = float(form.direct) * direct
        results[form.target] += float(form.exchange) * (direct - float(known[key].ss.sum()))
    return results


def _run(form: PairForm, values: Mapping[str, Any], kernel: PairKernel, memory: int | None) -> PairEnergies | None:
    """Return the energies of all pairs, or None if the kernel does not apply."""
    factors = values[form.factor]
    if callable(factors) or not isinstance(factors, np.ndarray) or factors.dtype != np.float64 or not factors.size:
        return None
    energies = orbital_energies(form, values[form.denominator])
    if energies is None:
        return None
    lying = factors.transpose(form.occupied, form.virtual, form.auxiliary)
    ready = np.ascontiguousarray(lying)
    if memory is not None:
        # The kernel counts B as its own memory. The limit includes a copy of the operand, but not the operand.
        memory += 0 if ready is not factors and not np.shares_memory(ready, factors) else factors.nbytes
    try:
        e, f = (np.ascontiguousarray(x, np.float64) for x in energies)
        return kernel(ready, e, f, memory)
    except MemoryLimit:
        return None
