"""A plan: the steps that compute a network, the operands packed for them, and their compiled kernels.

operands -> packed as the steps' formats say (kept) -> steps in turn -> result
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trnqc.arrays import is_dynamo_there, is_tensor
from trnqc.errors import InputError, OperandError
from trnqc.host.blas import blas_threads
from trnqc.sparse.network.listing import layouts, listing
from trnqc.sparse.network.nest import Format, Kind
from trnqc.sparse.network.network import Network
from trnqc.sparse.network.notation import notation
from trnqc.sparse.network.tree import Tree
from trnqc.sparse.run.dense import by_matrices
from trnqc.sparse.run.kernel import Kernel, compiled
from trnqc.sparse.run.operands import Operands, packed
from trnqc.sparse.search.estimate import Estimate
from trnqc.sparse.search.named_nests import Step
from trnqc.sparse.tensors.convert import as_tensor
from trnqc.sparse.tensors.storage import FLOAT64, SparseTensor, floating, rounded


@dataclass(frozen=True, eq=False)
class Plan:
    """How a network is computed, for operands of these shapes.

    Print it to see formats, loops and estimates. It is made by `plan`.

    Attributes
    ----------
    network
        What is computed.
    form
        How it runs, one of the forms of `plan`.
    tree
        The order of contractions.
    steps
        Nests that run one after the other; none for ``"dense"``, where the contractions are products of matrices.
    dense
        Whether the result is dense.
    operands
        The operands that the plan was made with, and their packed copies.
    estimate
        The cost of a plan of one nest.
    notes
        What else was decided, for the printed plan.
    given
        The operands as the caller handed them in.
    derivatives
        Plans of the networks of derivatives, which are added when a derivative is first computed.
    """

    network: Network
    form: str
    tree: Tree
    steps: tuple[Step, ...]
    dense: bool
    operands: Operands
    estimate: Estimate | None = None
    notes: tuple[str, ...] = ()
    given: tuple[Any, ...] = ()
    derivatives: dict[Any, Plan] = field(default_factory=dict, repr=False)

    def run(self, *operands: Any, threads: int = 1) -> Any:
        """Compute the result, its axes in the order of the output's indices.

        Parameters
        ----------
        *operands
            All operands, in place of those that the plan was made with and of the same shapes. A `SparseTensor` that
            was used before is not packed again; arrays are, as they may have changed. Without any, the plan's own
            operands are used, and arrays among them must not have changed.
        threads
            Threads that share the outermost loops, or that the BLAS uses. The digits of nests do not depend on it.

        Returns
        -------
        numpy.ndarray, SparseTensor or torch.Tensor
            Dense or sparse as `dense` says; a tensor of PyTorch, strided or sparse COO, with its derivatives, if one of
            the operands is a tensor of PyTorch. Its element type is the one that holds those of the operands.

        Raises
        ------
        OperandError
            If operands have other shapes, or are equal in other places than those of the plan.
        MemoryLimit
            If workspaces or the result do not fit into the memory.
        CompilerError
            If there is no C compiler, or it fails.
        """
        if not isinstance(threads, int) or threads < 1:
            raise InputError(f"threads is a number of at least 1; found {threads!r}")
        if is_dynamo_there():
            from trnqc.sparse.run.untraced import ran as untraced

            return untraced(self, operands, threads)
        return self.ran(operands, threads)

    def ran(self, operands: Sequence[Any], threads: int) -> Any:
        """The result of `run`, from code that Dynamo must not trace."""
        handed = arrays(operands) if operands else self.given
        if any(is_tensor(x) for x in handed):
            from trnqc.sparse.run.derivatives import differentiable

            return differentiable(self, handed, None if operands else self.operands, threads)
        held = self.taken(handed) if operands else self.operands
        return _typed(self.computed(held, threads), result_type(handed))

    def computed(self, operands: Operands, threads: int) -> SparseTensor | np.ndarray:
        """The result in float64: an array if `dense`, else sparse."""
        result = self._nests(operands, threads) if self.steps else self._matrices(operands, threads)
        if self.dense:
            return np.asarray(result.to_dense() if isinstance(result, SparseTensor) else result)
        tensor = as_tensor(result)
        return tensor if tensor.ndim == 0 or "compressed" in tensor.kinds else _compressed(tensor)

    def _nests(self, operands: Operands, threads: int) -> SparseTensor | np.ndarray:
        held: list[SparseTensor | np.ndarray] = list(operands.tensors)
        for step, kernel in zip(self.steps, self.kernels()):
            inputs = [
                operands.packed(t, layout) if t < len(operands.tensors) else packed(as_tensor(held[t]), labels, layout)
                for t, labels, layout in zip(step.operands, step.nest.network.inputs, step.nest.formats)
            ]
            held.append(kernel(inputs, threads))
        return held[-1]

    def taken(self, operands: Sequence[Any]) -> Operands:
        """Other operands in the place of the plan's. Raises OperandError."""
        if same(operands) != self.network.same:
            raise OperandError(
                f"the plan {self.network} takes {len(self.network.same)} operands of which the first that is the same "
                f"tensor is, for each, {self.network.same}; found {same(operands)}"
            )
        return self.operands.exchanged(tensors(operands))

    def _matrices(self, operands: Operands, threads: int) -> np.ndarray:
        arrays = []
        for t, labels in enumerate(self.network.inputs):
            kinds: list[Kind] = ["dense"] * len(labels)
            values = operands.packed(t, Format(labels, tuple(kinds))).values
            assert values is not None
            arrays.append(values.reshape(self.network.shape(labels)))
        with blas_threads(threads):
            return by_matrices(self.network, self.tree, arrays)

    def kernels(self) -> list[Kernel]:
        """The kernels of all steps. They are compiled, or taken from the user's cache, at their first call."""
        return [compiled(step.nest) for step in self.steps]

    @property
    def source(self) -> str:
        """The C text of all kernels; empty for products of dense matrices."""
        return "\n".join(kernel.source for kernel in self.kernels())

    def __str__(self) -> str:
        lines = [f"{self.network}: {self.form}, contracted as {self.tree}", *self.notes]
        if self.estimate:
            lines.append(f"estimate: {self.estimate}")
        for number, step in enumerate(self.steps, 1):
            if len(self.steps) > 1:
                lines.append(f"step {number}: {step.nest.network}, operands {step.operands}")
            lines += [layouts(step.nest), listing(step.nest), str(notation(step.nest))]
        return "\n".join([*lines, f"operands: {self.operands}"])


def result_type(operands: Sequence[Any]) -> np.dtype:
    """The floating-point type that holds those of the operands. 0/1 maps have none."""
    kinds = [x.dtype for x in operands if not isinstance(x, SparseTensor) or x.values is not None]
    return floating(np.result_type(*kinds)) if kinds else FLOAT64


def _typed(result: SparseTensor | np.ndarray, dtype: np.dtype) -> SparseTensor | np.ndarray:
    return replace(result, dtype=dtype) if isinstance(result, SparseTensor) else rounded(result, dtype)


def _compressed(tensor: SparseTensor) -> SparseTensor:
    return tensor.repack(tensor.order, (*tensor.kinds[:-1], "compressed"))


def same(operands: Sequence[Any]) -> tuple[int, ...]:
    """For each operand the number of the first that is the same object."""
    return tuple(next(m for m, other in enumerate(operands) if other is x) for x in operands)


def arrays(operands: Sequence[Any]) -> tuple[Any, ...]:
    """Lists and numbers as NumPy arrays; what has elements of a type stays as it is."""
    return tuple(x if hasattr(x, "dtype") else np.asarray(x) for x in operands)


def tensors(operands: Sequence[Any]) -> list[SparseTensor]:
    """The operands as sparse tensors. Raises OperandError, which names the operand."""
    converted = []
    for number, operand in enumerate(operands):
        try:
            converted.append(as_tensor(operand))
        except OperandError as error:
            raise OperandError(f"operand {number}: {error}") from error
    return converted
