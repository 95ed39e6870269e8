"""The functions that users call: `contract` computes a result; `plan` returns a plan that can be run many times.

subscripts, operands -> network, counts of stored elements -> nests of the solver, dense products -> plan
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any

from trnqc.arrays import is_dynamo_there
from trnqc.errors import InputError, MemoryLimit
from trnqc.host.memory import installed_memory
from trnqc.sparse.blocks.find import FEWEST, found_blocks
from trnqc.sparse.blocks.plan import BlockPlan
from trnqc.sparse.blocks.planner import plan_blocks, plan_patterns
from trnqc.sparse.blocks.tensor import BlockTensor
from trnqc.sparse.network.nest import Nest
from trnqc.sparse.network.network import Indices, Network, network
from trnqc.sparse.network.tree import Tree, greedy, trees
from trnqc.sparse.network.views import views
from trnqc.sparse.run import repeated
from trnqc.sparse.run.complex_parts import with_pattern
from trnqc.sparse.run.dense import CALL_SECONDS, bytes_of_matrices, multiply_adds
from trnqc.sparse.run.kept_call import PLANNED, UNKNOWN, KeptCalls
from trnqc.sparse.run.machine_rates import machine_rates
from trnqc.sparse.run.operands import NetworkOperands, same
from trnqc.sparse.run.plan import Plan, arrays, tensors
from trnqc.sparse.search import named_nests
from trnqc.sparse.search.cost import CostModel
from trnqc.sparse.search.estimate import estimate
from trnqc.sparse.search.formats import Formats, Out
from trnqc.sparse.search.named_nests import NestStep
from trnqc.sparse.search.solve import Candidate, candidates
from trnqc.sparse.search.statistics import Statistics
from trnqc.sparse.tensors.checks import is_complex
from trnqc.sparse.tensors.convert import as_tensor
from trnqc.sparse.tensors.diagonals import viewed
from trnqc.sparse.tensors.fingerprint import fingerprint
from trnqc.sparse.tensors.libraries import order_of_result

OUTS = ("auto", "sparse", "dense")
FORMS = ("auto", "fused", "dense", "blocks", *named_nests.NAMES)
# Number of operands up to which all trees of pairs are compared for dense products.
ALL_TREES = 5
# Estimated seconds from which blocks of the operands are looked for, which takes longer itself.
LONG_FOR_BLOCKS = 2e-4
# Number of plans and of calls that are remembered, and what is kept of a plan: everything but the operands.
REMEMBERED = 256
_KEPT = ("network", "form", "tree", "steps", "dense", "estimate", "blocks", "notes")
# Returns nests for the network of a plan, the fastest first.
Search = Callable[[], tuple[Candidate, ...]]
_chosen: dict[Any, dict[str, Any]] = {}
# Bytes of calls on small operands that are remembered.
KEPT_BYTES = 1 << 27
_calls = KeptCalls(REMEMBERED, KEPT_BYTES)
_lock = Lock()


def contract(
    subscripts: str,
    *operands: Any,
    out: Out = "auto",
    tree: Tree | None = None,
    form: str | Nest = "auto",
    threads: int = 1,
) -> Any:
    """Compute a product of sparse and dense tensors, stated by the subscripts of einsum.

    Parameters
    ----------
    subscripts
        Subscripts of ``einsum``, such as ``"Kmn,mi,nu,Ki->Kiu"``.
    *operands
        `SparseTensor`, NumPy arrays, sparse arrays of SciPy and PyData, dense or sparse tensors of PyTorch, in any
        combination; or `BlockTensor` and NumPy arrays, which then count as having all blocks.
    out, tree, form
        See `plan`.
    threads
        See `Plan.run`.

    Returns
    -------
    numpy.ndarray, SparseTensor, BlockTensor, sparse array of SciPy or PyData, or torch.Tensor
        A dense result is an array. A sparse result is a CSR array of SciPy if all operands but dense arrays are sparse
        arrays of SciPy (CSC if all are CSC, a matrix if all are matrices, COO unless it has two axes), a COO array of
        PyData if all are PyData's (GCXS if all are GCXS), and a `SparseTensor` for others. For block tensors it is a
        `BlockTensor`, unless ``out="dense"``. If an operand is a tensor of PyTorch, the result is also one, strided or
        sparse COO, on the same device. It has gradients of any order, forward-mode derivatives and, if it is dense,
        supports ``torch.func.vmap``. The gradient of a sparse operand is a sparse tensor of its pattern and layout. The
        element type is the common type of the operands: float32 operands give float32, integers float64. The arithmetic
        is always in float64, for complex block tensors in complex128. A network with n other complex operands takes 2^n
        runs, of their real and imaginary parts.

    Raises
    ------
    ExpressionError
        If the subscripts do not fit the operands, or the tree does not contain every operand once.
    OperandError
        If an operand is not a tensor of numbers; if blocks or quantum numbers of block tensors do not match.
    InputError
        If an option has an invalid value.
    MemoryLimit
        If workspaces, dense copies or a dense result exceed the memory.
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
        from trnqc.sparse.run.untraced import untraced

        return untraced(contracted, subscripts, operands, out, tree, form, threads)
    return contracted(subscripts, operands, out, tree, form, threads)


def contracted(
    subscripts: str, operands: tuple[Any, ...], out: Out, tree: Tree | None, form: str | Nest, threads: int
) -> Any:
    """Compute the result of `contract`. Dynamo must not trace this function."""
    # The digits of nests do not depend on the number of threads, of which short calls need only one.
    usual = form == "auto" and tree is None and type(out) is type(subscripts) is str and type(threads) is int
    asked = subscripts, out, threads == 1
    known = _calls(asked, operands) if usual and threads > 0 else PLANNED
    if known is not UNKNOWN and known is not PLANNED:
        return known
    chosen = _planned(subscripts, operands, out, tree, form, once=True)
    result = chosen.run(threads=threads)
    if known is UNKNOWN and isinstance(chosen, Plan):
        call = repeated.repeated(chosen, operands, threads)
        if call is not None:
            _calls.add(asked, *call)
    return result


def plan(
    subscripts: str,
    *operands: Any,
    out: Out = "auto",
    tree: Tree | None = None,
    form: str | Nest = "auto",
    memory_limit: int | None = None,
    time_limit: float = 1.0,
) -> Any:
    """Plan how to compute a product of sparse and dense tensors, from the stored elements of these operands.

    Parameters
    ----------
    subscripts, *operands
        See `contract`.
    out
        ``"dense"`` or ``"sparse"``; ``"auto"`` decides by the expected fill of the result. `contract` states the kinds
        of results.
    tree
        The order of contractions as nested numbers of operands, such as ``((0, 1), 2)``. By default it is searched for.
    form
        ``"auto"`` for the form that is estimated to be fastest, ``"fused"`` for the best fused nest, ``"dense"`` for
        products of dense matrices, ``"blocks"`` for products of blocks that the stored elements form, ``"nary"``,
        ``"unfused"`` and ``"unfused-rows"`` for the forms of other compilers (see `search.named_nests`), or a `Nest` of
        your own.
    memory_limit
        Bytes for workspaces and dense copies, by default the machine's memory.
    time_limit
        Seconds that the search may take. After it, the best nest so far is used.

    Returns
    -------
    Plan or BlockPlan
        Print it to see layouts, loops and estimates; `Plan.run` computes the result. For block tensors a `BlockPlan`,
        whose order of pairwise products is that of the least work on stored blocks. Plans are remembered, so that a
        second call with elements stored at the same places does not search again, whatever their values are.

    Raises
    ------
    ExpressionError, OperandError, InputError, MemoryLimit
        See `contract`.
    """
    return _planned(subscripts, operands, out, tree, form, memory_limit, time_limit)


def _planned(
    subscripts: str,
    operands: Sequence[Any],
    out: Out,
    tree: Tree | None,
    form: str | Nest,
    memory_limit: int | None = None,
    time_limit: float = 1.0,
    once: bool = False,
) -> Any:
    """Return what `plan` returns; `once`: whether packing of operands counts, as in each call of `contract`."""
    if out not in OUTS:
        raise InputError(f"out is 'auto', 'sparse' or 'dense'; found {out!r}")
    if not isinstance(form, Nest) and form not in FORMS:
        raise InputError(f"form is one of {', '.join(FORMS)}, or a Nest; found {form!r}")
    operands = arrays(operands)
    if any(isinstance(x, BlockTensor) for x in operands):
        if form != "auto":
            raise InputError(f"form must be 'auto' for block tensors; found {form!r}")
        return plan_blocks(subscripts, operands, out, tree, memory_limit)
    converted = tensors(operands)
    plain, how = views(subscripts, tuple(tensor.shape for tensor in converted))
    read = viewed(operands, how)
    converted = [tensor if x is operand else as_tensor(x) for tensor, operand, x in zip(converted, operands, read)]
    # A plan of complex operands computes real networks: those of their real and imaginary parts.
    converted = [with_pattern(tensor) if is_complex(tensor) else tensor for tensor in converted]
    net = network(plain, [tensor.shape for tensor in converted], same(read))
    packed = NetworkOperands(net, converted)
    limit = installed_memory() if memory_limit is None else memory_limit
    given, wanted = packed.formats if once else (), order_of_result(net.output, operands)
    stored = tuple(fingerprint(converted[first]) for first in dict.fromkeys(net.same))
    asked = net, stored, out, tree, form, limit, time_limit, machine_rates(), once, wanted
    known = _chosen.get(asked)
    if known is None:
        search = partial(candidates, net, packed.tensors, machine_rates(), tree=tree, out=out, time_limit=time_limit)
        chosen = _chosen_plan(form, packed, tree, out, limit, partial(search, given=given, wanted=wanted))
        _remember(_chosen, asked, {name: getattr(chosen, name) for name in _KEPT})
    else:
        chosen = Plan(operands=packed, **known)
    return replace(chosen, arguments=operands, views=how, planner=plan)


def _remember(known: dict[Any, Any], asked: Any, found: Any) -> None:
    with _lock:
        while len(known) >= REMEMBERED:
            del known[next(iter(known))]
        known[asked] = found


def _chosen_plan(
    form: str | Nest, operands: NetworkOperands, tree: Tree | None, out: Out, limit: int, search: Search
) -> Plan:
    statistics = Statistics(operands.network, operands.tensors)
    if isinstance(form, Nest):
        return _plan_of_nest(form, operands, statistics, out)
    if form in named_nests.NAMES:
        return _plan_of_name(form, operands, statistics, tree, out)
    if form == "blocks":
        return _plan_of_blocks(operands, statistics, tree, out, limit)
    if form == "dense":
        return _plan_of_matrices(operands, statistics, tree, out, limit)
    return _fastest_plan(form, operands, tree, out, limit, search)


def _plan_of_name(form: str, operands: NetworkOperands, statistics: Statistics, tree: Tree | None, out: Out) -> Plan:
    net = operands.network
    dense = [t for t, tensor in enumerate(operands.tensors) if "compressed" not in tensor.kinds]
    sparse = Formats(statistics).result(net.output, out).sparse
    order = named_nests.in_order(net) if tree is None else tree
    steps = named_nests.form(form, net, order, dense, sparse)
    return Plan(net, form, order, steps, not sparse and out != "sparse", operands)


def _fastest_plan(
    form: str, operands: NetworkOperands, tree: Tree | None, out: Out, limit: int, search: Search
) -> Plan:
    """The nest of least estimated time, or for ``"auto"`` products of dense matrices if they are estimated faster."""
    began, net, rates = time.perf_counter(), operands.network, machine_rates()
    compared = search()
    elapsed = time.perf_counter() - began
    fitting = [candidate for candidate in compared if candidate.estimate.bytes <= limit]
    if not fitting:
        least = min(candidate.estimate.bytes for candidate in compared)
        raise MemoryLimit(f"the workspaces of {net} take at least {least} B; the limit is {limit} B")
    best: Candidate = fitting[0]
    notes = [f"nests compared: {len(compared)} in {elapsed:.2g} s; order of the best: {best.nest.order}"]
    notes.append(f"rates: {rates.source}")
    dense = not best.nest.formats[-1].sparse and out != "sparse"
    steps = (NestStep(best.nest, tuple(range(len(operands.tensors)))),)
    fused = Plan(net, "fused", best.tree, steps, dense, operands, best.estimate, tuple(notes))
    return fused if form == "fused" else _fastest_form(fused, best.estimate.seconds, operands, tree, limit)


def _fastest_form(nest: Plan, seconds: float, operands: NetworkOperands, tree: Tree | None, limit: int) -> Plan:
    """Return the nest, or products of dense matrices or of blocks if they are estimated to be faster."""
    net, chosen, notes = operands.network, nest, list(nest.notes)
    if nest.dense:
        product = _dense_tree(net) if tree is None else tree
        if bytes_of_matrices(net, product) <= limit:
            matrices = CALL_SECONDS + multiply_adds(net, product) * machine_rates().matrix_product
            notes.append(f"as dense matrices: {matrices * 1e3:.3g} ms")
            if matrices < seconds:
                chosen, seconds = Plan(net, "dense", product, (), True, operands), matrices
    if seconds > LONG_FOR_BLOCKS:
        blocks = _blocks(operands, tree, nest.dense, limit)
        notes += [f"as blocks: {blocks.seconds * 1e3:.3g} ms"] if blocks else []
        if blocks and blocks.seconds < seconds:
            chosen = replace(nest, form="blocks", tree=blocks.tree, estimate=None, blocks=blocks)
    if chosen is not nest:
        notes.append(f"nest: {nest.estimate}")
    return replace(chosen, notes=tuple(notes))


def _plan_of_nest(nest: Nest, operands: NetworkOperands, statistics: Statistics, out: Out) -> Plan:
    if nest.network != operands.network:
        raise InputError(
            f"the nest computes {nest.network}; found {operands.network}, other extents, or other operands that are "
            "the same tensor"
        )
    nest.check()
    everything = tuple(range(len(operands.tensors)))
    dense = out == "dense" or (out == "auto" and not nest.formats[-1].sparse)
    rates = machine_rates()
    cost, notes = estimate(nest, CostModel(statistics, rates)), (f"rates: {rates.source}",)
    return Plan(nest.network, "own nest", everything, (NestStep(nest, everything),), dense, operands, cost, notes)


def _plan_of_matrices(
    operands: NetworkOperands, statistics: Statistics, tree: Tree | None, out: Out, limit: int
) -> Plan:
    net = operands.network
    product = _dense_tree(net) if tree is None else tree
    if (needed := bytes_of_matrices(net, product)) > limit:
        raise MemoryLimit(f"dense matrices of {net} take {needed} B; the limit is {limit} B: choose another form")
    dense = out == "dense" or (out == "auto" and not Formats(statistics).result(net.output, out).sparse)
    notes = (f"as dense matrices: {multiply_adds(net, product):.3g} multiply-adds",)
    return Plan(net, "dense", product, (), dense, operands, notes=notes)


def _blocks(operands: NetworkOperands, tree: Tree | None, dense: bool, limit: int) -> BlockPlan | None:
    """Return the products of blocks if the operands consist of some, and their memory is within the limit."""
    net = operands.network
    tensors = [operands.tensors[first] for first in net.same]
    patterns = found_blocks(net, tensors)
    if patterns is None:
        return None
    found = plan_patterns(net, patterns, tree, dense)
    return found if found.bytes <= limit else None


def _plan_of_blocks(operands: NetworkOperands, statistics: Statistics, tree: Tree | None, out: Out, limit: int) -> Plan:
    net = operands.network
    dense = out == "dense" or (out == "auto" and not Formats(statistics).result(net.output, out).sparse)
    blocks = _blocks(operands, tree, dense, limit)
    if blocks is None:
        raise InputError(
            f"form='blocks' needs operands whose stored elements are blocks of at least {FEWEST} elements in the mean, "
            f"and products of at most {limit} B; those of {net} are not: use form='auto'"
        )
    return Plan(net, "blocks", blocks.tree, (), dense, operands, blocks=blocks)


def _dense_tree(net: Network) -> Tree:
    """The tree of pairs with the least multiply-adds on dense operands; for many operands one built pair by pair."""
    count = len(net.inputs)
    if count > ALL_TREES:
        return greedy(count, lambda a, b: float(math.prod(net.shape(_letters(net, a + b)))))
    return min(trees(count), key=lambda each: multiply_adds(net, each))


def _letters(net: Network, operands: Sequence[int]) -> Indices:
    return tuple(dict.fromkeys(index for t in operands for index in net.inputs[t]))
