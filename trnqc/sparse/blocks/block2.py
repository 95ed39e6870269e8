"""Matrix product states of block2 as block tensors.

tensors of pyblock2 -> the same charges along each bond and each site -> `BlockTensor`
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trnqc.errors import OperandError, UnsupportedError
from trnqc.sparse.blocks.charges import BlockCharges
from trnqc.sparse.blocks.tensor import BlockTensor

# Numbers of electrons and of 2 Sz add up; irreducible representations of D2h multiply bit by bit.
BITS = 3
MODULI = (None, None, *[2] * BITS)

Charge = tuple[int, ...]
Block = tuple[tuple[Charge, ...], np.ndarray]
Sizes = dict[Charge, int]


def from_block2(*states: Any) -> list[BlockTensor] | tuple[list[BlockTensor], ...]:
    """Return the tensors of matrix product states of block2.

    Parameters
    ----------
    *states
        What ``pyblock2.algebra.io.MPSTools.from_block2(mps)`` returns for states of the symmetry SZ, or its tensors.

    Returns
    -------
    list of BlockTensor, or a tuple of lists for several states
        The tensors in the order of the sites, with the indices (left bond, site, right bond). The first one has no left
        bond, and the last one no right bond. The quantum numbers are the number of electrons, twice the projection of
        the spin, and three bits of the irreducible representation; left and site add up to right, and to the state's
        quantum numbers at the last site. Sites of all states have the same blocks, so that overlaps can be contracted.

    Raises
    ------
    OperandError
        If a state has fewer than two sites, states differ in their number, or blocks do not fit.
    UnsupportedError
        For other symmetries, such as SU2, whose reduced matrices need coefficients of coupling: convert the state by
        ``driver.mps_change_to_sz``.
    """
    chains = [[_blocks(tensor) for tensor in getattr(state, "tensors", state)] for state in states]
    lengths = {len(chain) for chain in chains}
    if len(lengths) != 1 or min(lengths) < 2:
        raise OperandError(f"states have the same number of at least two sites; found {[len(c) for c in chains]}")
    (length,) = lengths
    sites = [_sizes([chain[n] for chain in chains], int(n > 0), f"site {n}") for n in range(length)]
    made = [_chain(chain, sites) for chain in chains]
    return made[0] if len(made) == 1 else tuple(made)


def _chain(chain: Sequence[list[Block]], sites: Sequence[Sizes]) -> list[BlockTensor]:
    last = len(chain) - 1
    bonds = [_merged(_sizes([chain[n]], -1, f"bond {n}"), _sizes([chain[n + 1]], 0, f"bond {n}")) for n in range(last)]
    tensors = []
    for n, blocks in enumerate(chain):
        modes = [*([bonds[n - 1]] if n else []), sites[n], *([bonds[n]] if n < last else [])]
        directions = (1,) * (len(modes) - (n < last)) + (-1,) * (n < last)
        charges = tuple(tuple(sorted(mode)) for mode in modes)
        numbers = [{charge: number for number, charge in enumerate(mode)} for mode in charges]
        total = _total(blocks, directions) if n == last else (0,) * len(MODULI)
        items = [(tuple(own[q] for own, q in zip(numbers, labels)), array) for labels, array in blocks]
        sizes = [[mode[q] for q in labels] for mode, labels in zip(modes, charges)]
        tensors.append(BlockTensor.from_blocks(items, sizes, BlockCharges(charges, directions, total, MODULI)))
    return tensors


def _blocks(tensor: Any) -> list[Block]:
    if not getattr(tensor, "blocks", None):
        raise OperandError(f"expected tensors of pyblock2 with blocks; found {type(tensor).__name__}")
    found = [(tuple(map(_charge, block.q_labels)), np.asarray(block.reduced)) for block in tensor.blocks]
    ranks = {len(labels) for labels, _ in found} | {array.ndim for _, array in found}
    if len(ranks) != 1 or not ranks <= {2, 3}:
        raise OperandError(f"tensors have two or three indices, as many as quantum numbers; found {sorted(ranks)}")
    return found


def _charge(label: Any) -> Charge:
    name = type(label).__name__
    if name != "SZ":
        raise UnsupportedError(
            f"the symmetry must be SZ, whose blocks add up as matrices; found {name}: convert the state by "
            "driver.mps_change_to_sz"
        )
    return int(label.n), int(label.twos), *((int(label.pg) >> bit) & 1 for bit in range(BITS))


def _sizes(tensors: Sequence[list[Block]], axis: int, where: str) -> Sizes:
    """Return the extent of each charge along an axis."""
    found: Sizes = {}
    for blocks in tensors:
        for labels, array in blocks:
            if found.setdefault(labels[axis], array.shape[axis]) != array.shape[axis]:
                raise OperandError(
                    f"blocks of the charge {labels[axis]} along {where} have {found[labels[axis]]} and "
                    f"{array.shape[axis]} elements"
                )
    return found


def _merged(left: Sizes, right: Sizes) -> Sizes:
    """Return the charges of both tensors at a bond; one of them may have no block of a charge."""
    for charge in set(left) & set(right):
        if left[charge] != right[charge]:
            raise OperandError(f"a bond has {left[charge]} and {right[charge]} elements of the charge {charge}")
    return left | right


def _total(blocks: Sequence[Block], directions: Sequence[int]) -> Charge:
    labels = blocks[0][0]
    sums = [sum(sign * q[k] for sign, q in zip(directions, labels)) for k in range(len(MODULI))]
    return tuple(x if n is None else x % n for x, n in zip(sums, MODULI))
