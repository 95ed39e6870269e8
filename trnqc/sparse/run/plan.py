"""A plan: the steps that compute a network, the operands packed for them, and their compiled kernels.

operands -> packed in the formats of the steps (kept for later runs) -> steps in order -> result
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trnqc.arrays import is_dynamo_there, is_tensor
from trnqc.errors import InputError, OperandError
from trnqc.host.blas import blas_threads
from trnqc.jit import lacks_compiler
from trnqc.sparse.blocks.find import to_elements
from trnqc.sparse.blocks.plan import BlockPlan
from trnqc.sparse.blocks.tensor import BlockTensor
from trnqc.sparse.network.nest import Format, Kind
from trnqc.sparse.network.network import Network
from trnqc.sparse.network.notation import layouts, listing, notation
from trnqc.sparse.network.tree import Tree
from trnqc.sparse.network.views import OperandView
from trnqc.sparse.run.complex_parts import computed_by_parts
from trnqc.sparse.run.coordinates import by_coordinates, say_no_compiler
from trnqc.sparse.run.dense import by_matrices
from trnqc.sparse.run.kernel import NestKernel, compiled
from trnqc.sparse.run.operands import NetworkOperands, packed, same
from trnqc.sparse.search.estimate import Estimate
from trnqc.sparse.search.named_nests import NestStep
from trnqc.sparse.tensors.checks import is_complex
from trnqc.sparse.tensors.convert import as_tensor
from trnqc.sparse.tensors.diagonals import viewed
from trnqc.sparse.tensors.libraries import as_operands_are
from trnqc.sparse.tensors.storage import FLOAT64, SparseTensor, floating, rounded


@dataclass(frozen=True, eq=False)
class Plan:
    """How a network is computed, for operands of these shapes.

    `plan` returns plans. Print one to see its formats, loops and estimates.

    Attributes
    ----------
    network
        The product that is computed.
    form
        How it is computed, one of the forms of `plan`; ``"own nest"`` for a nest of the caller.
    tree
        The order of contractions.
    steps
        Nests that run one after the other; none for ``"dense"``, whose contractions are products of matrices. For
        ``"blocks"``, the nest that computes operands whose stored elements are no such blocks.
    dense
        Whether the result is dense.
    operands
        The operands for which the plan was made, and their packed copies.
    estimate
        The cost of a plan of one nest.
    notes
        Other decisions, for the printed plan.
    blocks
        The products of blocks of ``"blocks"``.
    arguments
        The operands as the caller passed them to `plan`.
    views
        How each of them is viewed as an operand of the network, whose indices differ.
    planner
        What plans the networks of derivatives: `trnqc.sparse.plan`.
    derivatives
        Plans of the networks of derivatives. One is added when a derivative is first computed.
    """

    network: Network
    form: str
    tree: Tree
    steps: tuple[NestStep, ...]
    dense: bool
    operands: NetworkOperands
    estimate: Estimate | None = None
    notes: tuple[str, ...] = ()
    blocks: BlockPlan | None = None
    arguments: tuple[Any, ...] = ()
    views: tuple[OperandView, ...] = ()
    planner: Callable[..., Plan] | None = field(default=None, repr=False)
    derivatives: dict[Any, Plan] = field(default_factory=dict, repr=False)

    def run(self, *operands: Any, threads: int = 1) -> Any:
        """Compute the result, with axes in the order of the output's indices.

        Parameters
        ----------
        *operands
            Operands of the same shapes, in place of those for which the plan was made. A `SparseTensor` that was used
            before is not packed again, so that values edited in place are not seen: pass a new tensor, or call
            `contract`. Arrays are packed again, because they may have changed. Without any, the plan's own operands are
            used, none of which must have changed.
        threads
            Number of threads that share the outermost loops, or that the BLAS uses. The digits of nests do not depend
            on it.

        Returns
        -------
        numpy.ndarray, SparseTensor, sparse array of SciPy or PyData, or torch.Tensor
            Dense or sparse according to `dense`, of the kind that `contract` states. Its element type is the common
            type of the operands.

        Raises
        ------
        OperandError
            If operands have other shapes or another number, or if other operands than in the plan are the same tensor.
        MemoryLimit
            If workspaces or the result exceed the memory.
        CompilerError
            If the compiler fails. Without a compiler SciPy computes the result, which one warning says.
        """
        if not isinstance(threads, int) or threads < 1:
            raise InputError(f"threads is a number of at least 1; found {threads!r}")
        if is_dynamo_there():
            from trnqc.sparse.run.untraced import untraced

            return untraced(Plan.ran, self, operands, threads)
        return self.ran(operands, threads)

    def ran(self, operands: Sequence[Any], threads: int) -> Any:
        """Compute the result of `run`. Dynamo must not trace this function."""
        arguments = arrays(operands) if operands else self.arguments
        if len(arguments) != len(self.views):
            raise OperandError(f"the plan {self.network} takes {len(self.views)} operands; found {len(arguments)}")
        if any(is_complex(x) for x in arguments):
            return self._of_parts(arguments, threads)
        if any(is_tensor(x) for x in arguments):
            from trnqc.sparse.run.derivatives import differentiable

            # A graph of PyTorch serves once, so that views are taken in every call.
            read = viewed(arguments, self.views)
            return differentiable(self, read, None if operands else self.operands, threads)
        packed = self.exchanged(viewed(arguments, self.views)) if operands else self.operands
        return as_operands_are(typed(self.computed(packed, threads), result_type(arguments)), arguments)

    def _of_parts(self, arguments: Sequence[Any], threads: int) -> Any:
        read = viewed(arguments, self.views)
        self._check_same(read)
        if any(is_tensor(x) for x in arguments):
            from trnqc.sparse.run.complex_tensors import computed_by_parts as tensor_by_parts

            return tensor_by_parts(self, read, threads)
        result = computed_by_parts(self, tensors(read), threads)
        return as_operands_are(typed(result, result_type(arguments)), arguments)

    def computed(self, operands: NetworkOperands, threads: int) -> SparseTensor | np.ndarray:
        """Compute the result in float64: an array if `dense`, else a sparse tensor."""
        result = self._of_blocks(operands, threads)
        if result is None:
            result = self._of_elements(operands, threads)
        return self.as_planned(result)

    def as_planned(self, result: SparseTensor | np.ndarray) -> SparseTensor | np.ndarray:
        """Return a result as an array if `dense`, else as a sparse tensor."""
        if self.dense:
            return np.asarray(result.to_dense() if isinstance(result, SparseTensor) else result)
        tensor = as_tensor(result)
        return tensor if tensor.ndim == 0 or "compressed" in tensor.kinds else _compressed(tensor)

    def _of_blocks(self, operands: NetworkOperands, threads: int) -> SparseTensor | np.ndarray | None:
        """Return the result from products of blocks; None if they are not planned, or if elements lie outside them."""
        if self.blocks is None:
            return None
        inputs = [operands.as_blocks(t, pattern) for t, pattern in enumerate(self.blocks.patterns)]
        if any(x is None for x in inputs):
            if self.steps:
                return None
            raise OperandError(
                f"an operand of {self.network} has elements outside of the blocks of its plan: plan anew"
            )
        result = self.blocks.run(*inputs, threads=threads)
        return to_elements(result) if isinstance(result, BlockTensor) else result

    def _of_elements(self, operands: NetworkOperands, threads: int) -> SparseTensor | np.ndarray:
        reason = lacks_compiler() if self.steps else ""
        if reason:
            say_no_compiler(reason)
            return by_coordinates(self.network, self.tree, [operands.tensors[first] for first in self.network.same])
        return self._nests(operands, threads) if self.steps else self._matrices(operands, threads)

    def _nests(self, operands: NetworkOperands, threads: int) -> SparseTensor | np.ndarray:
        results: list[SparseTensor | np.ndarray] = list(operands.tensors)
        for step, kernel in zip(self.steps, self.kernels()):
            inputs = [
                operands.packed(t, layout)
                if t < len(operands.tensors)
                else packed(as_tensor(results[t]), labels, layout)
                for t, labels, layout in zip(step.operands, step.nest.network.inputs, step.nest.formats)
            ]
            results.append(kernel(inputs, threads))
        return results[-1]

    def exchanged(self, operands: Sequence[Any]) -> NetworkOperands:
        """Return other operands in the place of the plan's. Raises OperandError."""
        self._check_same(operands)
        return self.operands.exchanged(tensors(operands))

    def _check_same(self, operands: Sequence[Any]) -> None:
        if same(operands) != self.network.same:
            raise OperandError(
                f"the operands of the plan {self.network} that are the same tensor must be so again: the number of the "
                f"first operand that is the same is {self.network.same} for each; found {same(operands)}"
            )

    def _matrices(self, operands: NetworkOperands, threads: int) -> np.ndarray:
        arrays = []
        for t, labels in enumerate(self.network.inputs):
            kinds: list[Kind] = ["dense"] * len(labels)
            values = operands.packed(t, Format(labels, tuple(kinds))).values
            assert values is not None
            arrays.append(values.reshape(self.network.shape(labels)))
        with blas_threads(threads):
            return by_matrices(self.network, self.tree, arrays)

    def kernels(self) -> list[NestKernel]:
        """Return the kernels of all steps, which are compiled, or read from the user's cache, at their first call."""
        return [compiled(step.nest) for step in self.steps]

    @property
    def source(self) -> str:
        """The C source of all kernels; empty for products of matrices."""
        return "\n".join(kernel.source for kernel in self.kernels())

    def __str__(self) -> str:
        lines = [f"{self.network}: {self.form}, contracted as {self.tree}", *self.notes]
        if self.estimate:
            lines.append(f"estimate: {self.estimate}")
        for number, step in enumerate(self.steps, 1):
            if len(self.steps) > 1:
                lines.append(f"step {number}: {step.nest.network}, operands {step.operands}")
            lines += [layouts(step.nest), listing(step.nest), str(notation(step.nest))]
        if self.blocks:
            lines.insert(1, str(self.blocks))
        if count := sum(map(is_complex, self.arguments)):
            lines.append(f"complex operands: {2**count} runs with their real and imaginary parts")
        return "\n".join([*lines, f"operands: {self.operands}"])


def result_type(operands: Sequence[Any]) -> np.dtype:
    """Return the common floating-point type of the operands. 0/1 maps have none."""
    kinds = [x.dtype for x in operands if not isinstance(x, SparseTensor) or x.values is not None]
    return floating(np.result_type(*kinds)) if kinds else FLOAT64


def typed(result: SparseTensor | np.ndarray, dtype: np.dtype) -> SparseTensor | np.ndarray:
    """Return a result in float64 as one with elements of another type."""
    return replace(result, dtype=dtype) if isinstance(result, SparseTensor) else rounded(result, dtype)


def _compressed(tensor: SparseTensor) -> SparseTensor:
    return tensor.repack(tensor.order, (*tensor.kinds[:-1], "compressed"))


def arrays(operands: Sequence[Any]) -> tuple[Any, ...]:
    """Convert lists and numbers to NumPy arrays. Objects with a dtype are returned as they are."""
    return tuple(x if hasattr(x, "dtype") else np.asarray(x) for x in operands)


def tensors(operands: Sequence[Any]) -> list[SparseTensor]:
    """Convert the operands to sparse tensors. Raises OperandError, which names the operand."""
    converted = []
    for number, operand in enumerate(operands):
        try:
            converted.append(as_tensor(operand))
        except OperandError as error:
            raise OperandError(f"operand {number}: {error}") from error
    return converted
