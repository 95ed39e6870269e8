"""The functions that users call: `contract` for a result, `plan` for how it is computed, to compute it again.

subscripts, operands -> network, counts of stored elements -> nests of the solver, dense products -> plan
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trnqc.arrays import is_dynamo_there
from trnqc.errors import InputError, MemoryLimit
from trnqc.host.memory import installed_memory
from trnqc.sparse.network.nest import Nest
from trnqc.sparse.network.network import Indices, Network, network
from trnqc.sparse.network.tree import Tree, greedy, trees
from trnqc.sparse.run.dense import bytes_of_matrices, multiply_adds
from trnqc.sparse.run.measured_rates import machine_rates
from trnqc.sparse.run.operands import Operands
from trnqc.sparse.run.plan import Plan, arrays, same, tensors
from trnqc.sparse.search import named_nests
from trnqc.sparse.search.cost import Model
from trnqc.sparse.search.estimate import estimate
from trnqc.sparse.search.formats import Formats, Out
from trnqc.sparse.search.named_nests import Step
from trnqc.sparse.search.solve import Candidate, candidates
from trnqc.sparse.search.statistics import Statistics

FORMS = ("auto", "fused", "dense", *named_nests.NAMES)
# Up to so many operands, all trees of pairs are compared for dense products.
ALL_TREES = 5


def contract(
    subscripts: str,
    *operands: Any,
    out: Out = "auto",
    tree: Tree | None = None,
    form: str | Nest = "auto",
    threads: int = 1,
) -> Any:
    """Compute a product of sparse and dense tensors as einsum writes it.

    Parameters
    ----------
    subscripts
        Subscripts of ``einsum``, such as ``"Kmn,mi,nu,Ki->Kiu"``.
    *operands
        `SparseTensor`, NumPy arrays, sparse arrays of SciPy, dense or sparse tensors of PyTorch, in any mixture.
    out, tree, form
        See `plan`.
    threads
        See `Plan.run`.

    Returns
    -------
    numpy.ndarray, SparseTensor or torch.Tensor
        An array or a `SparseTensor`. If an operand is a tensor of PyTorch, the result is one on its device, strided or
        sparse COO, with gradients of any order, forward-mode derivatives and, if it is dense, ``torch.func.vmap``. The
        gradient of a sparse operand is a sparse tensor of its pattern and layout. The element type is the one that
        holds those of the operands: float32 operands give float32, integers float64. The arithmetic is always in
        float64.

    Raises
    ------
    ExpressionError
        If the subscripts do not fit the operands, or the tree does not have every operand once.
    OperandError
        If an operand is not a tensor of real numbers.
    InputError
        If an option has no such value.
    MemoryLimit
        If workspaces, dense copies or a dense result do not fit into the memory.
    CompilerError
        If there is no C compiler, or it fails.

    Examples
    --------
    >>> import numpy as np
    >>> from trnqc import sparse
    >>> sparse.contract("ij,j->i", np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([3.0, 4.0]), form="dense")
    array([3., 8.])
    """
    if is_dynamo_there():
        from trnqc.sparse.run.untraced import contracted as untraced

        return untraced(subscripts, *operands, out=out, tree=tree, form=form, threads=threads)
    return contracted(subscripts, *operands, out=out, tree=tree, form=form, threads=threads)


def contracted(subscripts: str, *operands: Any, out: Out, tree: Tree | None, form: str | Nest, threads: int) -> Any:
    """The result of `contract`, from code that Dynamo must not trace."""
    return plan(subscripts, *operands, out=out, tree=tree, form=form).run(threads=threads)


def plan(
    subscripts: str,
    *operands: Any,
    out: Out = "auto",
    tree: Tree | None = None,
    form: str | Nest = "auto",
    memory_limit: int | None = None,
    time_limit: float = 1.0,
) -> Plan:
    """Plan how to compute a product of sparse and dense tensors, by the sparsity of these operands.

    Parameters
    ----------
    subscripts, *operands
        See `contract`.
    out
        ``"dense"`` for an array, ``"sparse"`` for a `SparseTensor`, ``"auto"`` for what suits how full the result is
        expected to be.
    tree
        The order of contractions as nested numbers of operands, such as ``((0, 1), 2)``. By default it is searched for.
    form
        ``"auto"`` for what is estimated fastest, ``"fused"`` for the solver's best nest, ``"dense"`` for products of
        dense matrices, ``"nary"``, ``"unfused"`` and ``"unfused-rows"`` for what other compilers do (see
        `search.named_nests`), or a `Nest` of your own.
    memory_limit
        Bytes for workspaces and dense copies, by default the machine's memory.
    time_limit
        Seconds that the solver may take; then the best nest so far is taken.

    Raises
    ------
    ExpressionError, OperandError, InputError, MemoryLimit
        See `contract`.
    """
    if out not in ("auto", "sparse", "dense"):
        raise InputError(f"out is 'auto', 'sparse' or 'dense'; found {out!r}")
    if not isinstance(form, Nest) and form not in FORMS:
        raise InputError(f"form is one of {', '.join(FORMS)}, or a Nest; found {form!r}")
    operands = arrays(operands)
    packed = tensors(operands)
    net = network(subscripts, [tensor.shape for tensor in packed], same(operands))
    held, statistics = Operands(net, packed), Statistics(net, packed)
    limit = installed_memory() if memory_limit is None else memory_limit
    return replace(_made(form, held, statistics, tree, out, limit, time_limit), given=operands)


def _made(
    form: str | Nest,
    held: Operands,
    statistics: Statistics,
    tree: Tree | None,
    out: Out,
    limit: int,
    seconds: float,
) -> Plan:
    if isinstance(form, Nest):
        return _of_nest(form, held, statistics, out)
    net = held.network
    if form in named_nests.NAMES:
        full = [t for t, tensor in enumerate(held.tensors) if "compressed" not in tensor.kinds]
        sparse = Formats(statistics).result(net.output, out).sparse
        order = named_nests.in_order(net) if tree is None else tree
        steps = named_nests.form(form, net, order, full, sparse)
        return Plan(net, form, order, steps, not sparse and out != "sparse", held)
    if form == "dense":
        return _of_matrices(held, statistics, tree, out, limit)
    return _fastest(form, held, statistics, tree, out, limit, seconds)


def _fastest(
    form: str, held: Operands, statistics: Statistics, tree: Tree | None, out: Out, limit: int, seconds: float
) -> Plan:
    began = time.perf_counter()
    compared = candidates(held.network, held.tensors, machine_rates(), tree=tree, out=out, time_limit=seconds)
    elapsed = time.perf_counter() - began
    fitting = [candidate for candidate in compared if candidate.estimate.bytes <= limit]
    if not fitting:
        least = min(candidate.estimate.bytes for candidate in compared)
        raise MemoryLimit(f"the workspaces of {held.network} take at least {least} B; the limit is {limit} B")
    best: Candidate = fitting[0]
    notes = [f"nests compared: {len(compared)} in {elapsed:.2g} s; order of the best: {best.nest.order}"]
    dense = not best.nest.formats[-1].sparse and out != "sparse"
    if form == "auto" and dense:
        product = _dense_tree(held.network) if tree is None else tree
        if bytes_of_matrices(held.network, product) <= limit:
            matrices = multiply_adds(held.network, product) * machine_rates().matrix_product
            notes.append(f"as dense matrices: {matrices * 1e3:.3g} ms")
            if matrices < best.estimate.seconds:
                notes.append(f"nest: {best.estimate}")
                return Plan(held.network, "dense", product, (), True, held, notes=tuple(notes))
    steps = (Step(best.nest, tuple(range(len(held.tensors)))),)
    return Plan(held.network, "fused", best.tree, steps, dense, held, best.estimate, tuple(notes))


def _of_nest(nest: Nest, held: Operands, statistics: Statistics, out: Out) -> Plan:
    if nest.network != held.network:
        raise InputError(f"the nest computes {nest.network}, extents and equal operands included; found {held.network}")
    nest.check()
    steps = (Step(nest, tuple(range(len(held.tensors)))),)
    dense = out == "dense" or (out == "auto" and not nest.formats[-1].sparse)
    tree: Tree = tuple(range(len(held.tensors)))
    return Plan(
        nest.network, "given nest", tree, steps, dense, held, estimate(nest, Model(statistics, machine_rates()))
    )


def _of_matrices(held: Operands, statistics: Statistics, tree: Tree | None, out: Out, limit: int) -> Plan:
    net = held.network
    product = _dense_tree(net) if tree is None else tree
    if (needed := bytes_of_matrices(net, product)) > limit:
        raise MemoryLimit(f"dense matrices of {net} take {needed} B; the limit is {limit} B: take another form")
    dense = out == "dense" or (out == "auto" and not Formats(statistics).result(net.output, out).sparse)
    notes = (f"as dense matrices: {multiply_adds(net, product):.3g} multiply-adds",)
    return Plan(net, "dense", product, (), dense, held, notes=notes)


def _dense_tree(net: Network) -> Tree:
    """The tree of pairs with the least multiply-adds on dense operands."""
    count = len(net.inputs)
    if count > ALL_TREES:
        return greedy(count, lambda a, b: float(math.prod(net.shape(_letters(net, a + b)))))
    return min(trees(count), key=lambda each: multiply_adds(net, each))


def _letters(net: Network, operands: Sequence[int]) -> Indices:
    return tuple(dict.fromkeys(index for t in operands for index in net.inputs[t]))
