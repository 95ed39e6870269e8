"""The plan of a network of block tensors: pairwise products in order, ready to run with other values.

subscripts, patterns -> order of least work -> products -> values -> `BlockTensor`
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from trnqc.errors import InputError, OperandError
from trnqc.host.blas import blas_threads
from trnqc.sparse.blocks.homes import BlockCopy, copy_seconds
from trnqc.sparse.blocks.pattern import BlockPattern
from trnqc.sparse.blocks.product import BlockProduct, StackedProducts
from trnqc.sparse.blocks.tensor import BlockTensor, block_dtype
from trnqc.sparse.network.network import Network
from trnqc.sparse.network.tree import Tree
from trnqc.sparse.tensors.checks import plain_array

# Floating-point operations of a plan below which no product is large enough for OpenBLAS to share it among threads
# (it does from 2^19 on), so that setting their number would take longer than the products.
SHARED = 2**18


@dataclass(frozen=True)
class BlockStep:
    """A pairwise product with the numbers of its operands: those of the network, then ones, then earlier steps."""

    operands: tuple[int, int]
    product: BlockProduct


@dataclass(frozen=True, eq=False)
class BlockPlan:
    """How a network of block tensors is computed, for operands of these patterns.

    `plan` returns it. Print it to see its pairwise products, blocks, floating-point operations and bytes.

    Attributes
    ----------
    network
        The product that is computed.
    tree
        The order of contractions.
    patterns
        The stored blocks of each operand.
    steps
        Pairwise products.
    arranged, spread
        The copies of the last product's blocks to a block tensor, and to an array.
    result
        The stored blocks of the result.
    ones
        Numbers of elements of the tensors of ones by which a single operand is multiplied to sum its own indices.
    dense
        Whether the result is an array.
    arguments
        The operands for which the plan was made, if it was made for some.
    packed
        Packed copies of block tensors among them, which are made at the first run.
    """

    network: Network
    tree: Tree
    patterns: tuple[BlockPattern, ...]
    steps: tuple[BlockStep, ...]
    arranged: BlockCopy
    spread: BlockCopy
    result: BlockPattern
    ones: tuple[int, ...]
    dense: bool = False
    arguments: tuple[Any, ...] = ()
    packed: dict[Any, np.ndarray] = field(default_factory=dict, repr=False)

    @cached_property
    def flops(self) -> int:
        """Additions and multiplications of all products."""
        return sum(step.product.pair.flops for step in self.steps)

    @property
    def seconds(self) -> float:
        """The estimated time on one thread."""
        elements = self.spread.size if self.dense else self.result.size
        return sum(step.product.seconds for step in self.steps) + copy_seconds(elements, len(self.result))

    @property
    def bytes(self) -> int:
        """Memory of all packed operands and products in float64, and of the places of elements."""
        return (self.spread if self.dense else self.arranged).bytes + sum(step.product.bytes for step in self.steps)

    def run(self, *operands: Any, threads: int = 1) -> BlockTensor | np.ndarray:
        """Compute the result, with modes in the order of the output's indices.

        Parameters
        ----------
        *operands
            Operands with the same stored blocks, in place of those for which the plan was made. Without any, those are
            used. The block tensors for which the plan was made are packed once, others in every run.
        threads
            Number of threads of the BLAS.

        Returns
        -------
        BlockTensor or numpy.ndarray
            The element type is the common type of the operands. The arithmetic is in float64 or complex128.

        Raises
        ------
        OperandError
            If operands have other stored blocks.
        """
        if not isinstance(threads, int) or threads < 1:
            raise InputError(f"threads is a number of at least 1; found {threads!r}")
        arguments = operands or self.arguments
        if len(arguments) != len(self.patterns):
            raise OperandError(f"the plan {self.network} takes {len(self.patterns)} operands; found {len(arguments)}")
        given = [_values(t, x, pattern) for t, (x, pattern) in enumerate(zip(arguments, self.patterns))]
        common = np.result_type(*given)
        work = np.result_type(common, np.float64)
        values = [x.astype(work, copy=False) for x in given] + [np.ones(n, work) for n in self.ones]
        own = {t for t, (x, y) in enumerate(zip(arguments, self.arguments)) if isinstance(x, BlockTensor) and x is y}
        with blas_threads(threads) if self.flops > SHARED else nullcontext():
            for step in self.steps:
                product, (a, b) = step.product, step.operands
                left = self._packed(product.left, values[a], a in own)
                right = self._packed(product.right, values[b], b in own)
                values.append(product.run(left, right))
        if self.dense:
            return self.spread.run(values[-1]).astype(common, copy=False).reshape(self.result.shape)
        return BlockTensor(self.result, self.arranged.run(values[-1]).astype(common, copy=False))

    def _packed(self, copy: BlockCopy, values: np.ndarray, own: bool) -> np.ndarray:
        """Return packed values; those of the plan's own block tensors are kept, because they never change."""
        if not own or copy.nothing:
            return copy.run(values)
        key = id(copy), values.dtype
        if key not in self.packed:
            self.packed[key] = copy.run(values)
        return self.packed[key]

    def __str__(self) -> str:
        lines = [f"{self.network}: blocks, contracted as {self.tree}"]
        for t, (labels, pattern) in enumerate(zip(self.network.inputs, self.patterns)):
            lines.append(f"operand {t}, {''.join(labels)}: {extent(pattern)}")
        first = len(self.patterns)
        for t, count in enumerate(self.ones, first):
            lines.append(f"operand {t}: {count} ones, which sum indices of a single operand or copy it")
        first += len(self.ones)
        for number, step in enumerate(self.steps, first):
            pair, product = step.product.pair, step.product
            inputs = ",".join("".join(labels) for labels, _ in (pair.left, pair.right))
            lines.append(
                f"product {number}, {inputs}->{''.join(pair.output)} of operands {step.operands}: "
                f"{extent(pair.result)}, {pair.flops:.3g} flops, {product.bytes:.3g} B; "
                f"{product.way}, {_products(product)}"
            )
        lines.append(f"in all {self.flops:.3g} flops, {self.bytes:.3g} B")
        return "\n".join(lines)


def extent(pattern: BlockPattern) -> str:
    """Return the numbers of blocks and elements as text."""
    return f"{len(pattern)} of {math.prod(map(len, pattern.sizes))} blocks, {pattern.size} elements"


def _products(product: BlockProduct) -> str:
    products = product.products
    if isinstance(products, StackedProducts):
        count = sum(stack[0] for stack in products.stacks)
        return f"{count} matrix products in {len(products.stacks)} stacks"
    return f"{len(products.steps)} matrix products"


def _values(number: int, operand: Any, pattern: BlockPattern) -> np.ndarray:
    if isinstance(operand, BlockTensor):
        if operand.pattern != pattern:
            raise OperandError(
                f"operand {number} of the plan has {extent(pattern)} and other sizes, places or charges of blocks "
                f"than those of {operand!r}: plan anew"
            )
        return operand.values
    array = plain_array(operand, f"operand {number}")
    if array.shape != pattern.shape or not pattern.whole:
        raise OperandError(f"operand {number} of the plan has {extent(pattern)}; found an array {array.shape}")
    flat = array.reshape(-1)
    return flat.astype(block_dtype(array.dtype), copy=False)
