"""Running two steps in turns on NumPy arrays, see `lower.chains`.

Each turn multiplies slices into memory that all turns share, and from there into its slice of the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from trnqc.contraction.lower.chains import StepChain
from trnqc.contraction.products.slices import Slice, multiply

# Most elements of the copies of slices.
SCRATCH = 2**21


def run_chain(chain: StepChain, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the result of the second step, its axes in the order of the chain.

    `arrays` are by name of the chain's operands, plain and of one type.
    """
    pair, label, kind = chain.pair, chain.label, np.result_type(*arrays.values())
    whole = {name: Slice(arrays[name], labels) for name, labels in chain.operands}
    extents = {x: n for s in whole.values() for x, n in zip(s.labels, s.array.shape)}
    above = int(pair is not None and pair.sign < 0)
    result = Slice((np.zeros if above else np.empty)([extents[x] for x in chain.order], kind), chain.order)
    between = Slice(np.empty([extents[x] for x in chain.between], kind), chain.between)
    sizes = [prod(extents[x] for x in labels if x != label) for _, labels in (*chain.operands, ("", chain.order))]
    # Slices of both operands of a product may have to be copied. Products whose copies do not fit are divided.
    scratch = np.empty(min(2 * max(*sizes, between.array.size), SCRATCH), kind)
    for turn in range(extents[label] - above):
        slices = {name: _at(s, label, turn) for name, s in (*whole.items(), (chain.names[0], between))}
        block = _at(result, label, turn)
        if pair:
            from_on = pair.second, turn + above, extents[label]
            slices, block = {name: s.part(*from_on) for name, s in slices.items()}, block.part(*from_on)
        multiply(slices[chain.names[0]], [slices[name] for name in chain.reads[0]], False, scratch)
        multiply(block, [slices[name] for name in chain.reads[1]], False, scratch)
        if pair:
            result.array[turn + above :, turn] = block.array if pair.sign > 0 else -block.array
    return result.array


def _at(s: Slice, label: str, turn: int) -> Slice:
    """Return the slice at one place along a label, or itself without the label."""
    if label not in s.labels:
        return s
    return Slice(np.moveaxis(s.array, s.labels.index(label), 0)[turn, ...], tuple(x for x in s.labels if x != label))
