"""The rates of the cost model on this machine, measured once with small nests and kept in the user's cache directory.

probes: small nests with made-up operands -> one compiled library -> seconds of each probe
-> rates of least squared relative error, near the proportions of the defaults

The cost model is linear in its rates: what a probe has of each kind of work is the model's own estimate with this rate
at one and all others at zero.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache

import numpy as np

from trnqc import __version__
from trnqc.errors import CompilerError
from trnqc.host.blas import blas_threads
from trnqc.host.memory import data_caches
from trnqc.host.rates import kept_rates
from trnqc.jit import Recipe, find_compiler, library
from trnqc.sparse.lower.program import program
from trnqc.sparse.network.nest import Format, Kind, Nest, Space
from trnqc.sparse.network.network import network
from trnqc.sparse.network.tree import Tree
from trnqc.sparse.run.dense import by_matrices, multiply_adds
from trnqc.sparse.run.kernel import Kernel
from trnqc.sparse.search.cost import Model
from trnqc.sparse.search.estimate import estimate
from trnqc.sparse.search.named_nests import fused
from trnqc.sparse.search.rates import Rates
from trnqc.sparse.search.statistics import Statistics
from trnqc.sparse.tensors.levels import Compressed, Dense
from trnqc.sparse.tensors.storage import SparseTensor, from_dense

# Rates that the probes are fitted for: all seconds but those of matrix products, which are measured directly.
FITTED = tuple(f.name for f in fields(Rates) if f.name not in ("matrix_product", "first_cache", "second_cache"))
# Weight of the defaults' proportions beside a probe: it decides only what the probes do not.
STEADINESS = 0.2
# Least-squares solutions of the fit, each with the weights of the one before.
STEPS = 8
# Part of the second cache that counts, since code and other data use it as well.
USABLE = 0.75
# Seconds of a probe that takes no longer than a call.
SHORTEST = 1e-6
# Order of contractions of the measured products of dense matrices.
PAIRS: Tree = ((0, 1), 2)

DENSE: tuple[Kind, ...] = ("dense", "dense")
ROWS: tuple[Kind, ...] = ("dense", "compressed")
THIN: tuple[Kind, ...] = ("compressed", "compressed")
CUBE: tuple[Kind, ...] = ("dense", "compressed", "compressed")
VECTOR: tuple[Kind, ...] = ("dense",)


@dataclass(frozen=True, eq=False)
class Probe:
    """A nest and operands in its formats."""

    nest: Nest
    operands: tuple[SparseTensor, ...]


@cache
def machine_rates() -> Rates:
    """The rates of this machine; the defaults where there is no C compiler, without which no nest runs at all."""
    try:
        compiler = find_compiler()
    except CompilerError:
        return Rates()
    return kept_rates("sparse", Rates, measured_rates, compiler.label, f"{compiler.vector_bytes}B", __version__)


def measured_rates() -> Rates:
    """Measure the rates of this machine, which takes a second to a second and a half, a third of it in the compiler."""
    caches, typical = data_caches(), Rates()
    known = replace(
        typical,
        first_cache=caches.get("L1", typical.first_cache),
        second_cache=USABLE * caches["L2"] if "L2" in caches else typical.second_cache,
    )
    probes = list(_probes())
    call, *times = (_least(work) for work in _compiled([_nothing(), *probes]))
    work = np.array([_work(probe, known) for probe in probes])
    rates = fitted(work, np.maximum(np.array(times) - call, SHORTEST))
    # Matrices come last: the first large arrays of a process cost page faults, which later ones do not.
    return replace(known, **rates, matrix_product=_matrix_product())


def fitted(work: np.ndarray, seconds: np.ndarray) -> dict[str, float]:
    """Rates of least squared relative error, none of them negative.

    Parameters
    ----------
    work
        [probes, rates]: how much each probe has of the work that each rate is for.
    seconds
        [probes]: what each probe took, without the time of the call itself.

    Notes
    -----
    Over the factors x of the defaults d and a common factor s, none of them negative, it minimises

        sum_p (t_p - seconds_p)^2 / (t_p seconds_p) + STEADINESS^2 sum_r (x_r - s)^2,   t_p = sum_r work_pr d_r x_r

    by least squares, with the t_p of the denominator from the step before: an estimate of half the time counts as much
    as one of twice the time.
    """
    from scipy.optimize import nnls

    defaults = np.array([getattr(Rates(), name) for name in FITTED])
    count = len(defaults)
    terms = np.hstack([work * defaults, np.zeros((len(seconds), 1))])
    steady = STEADINESS * np.hstack([np.eye(count), -np.ones((count, 1))])
    scale = seconds
    for _ in range(STEPS):
        target = np.concatenate([seconds / scale, np.zeros(count)])
        factors, _ = nnls(np.vstack([terms / scale[:, None], steady]), target)
        scale = np.sqrt(seconds * (terms @ factors))
    return dict(zip(FITTED, (defaults * factors[:count]).tolist()))


def _work(probe: Probe, known: Rates) -> list[float]:
    """How much work of every fitted kind the cost model sees in a probe."""
    statistics = Statistics(probe.nest.network, probe.operands)
    nothing = replace(known, **dict.fromkeys(FITTED, 0.0))
    return [estimate(probe.nest, Model(statistics, replace(nothing, **{name: 1.0}))).seconds for name in FITTED]


def _compiled(probes: Sequence[Probe]) -> list[Callable[[], object]]:
    """A call of each probe. All of them are one text, in which equal functions stand once."""
    lanes = find_compiler().lanes()
    programs = [program(probe.nest, lanes) for probe in probes]
    functions = dict.fromkeys(piece.function for each in programs for piece in each.pieces)
    named = {function: replace(function, name=f"probe{n}") for n, function in enumerate(functions)}
    loaded = library(Recipe.of(*named.values(), name="rates"))

    def call(n: int) -> Callable[[], object]:
        pieces = tuple(replace(piece, function=named[piece.function]) for piece in programs[n].pieces)
        kernel = Kernel(replace(programs[n], pieces=pieces), loaded)
        return lambda: kernel(probes[n].operands)

    return [call(n) for n in range(len(probes))]


def _least(work: Callable[[], object], times: int = 5) -> float:
    """The least seconds of this thread that some work took, after a first time that is not counted."""
    work()
    seconds = []
    for _ in range(times):
        start = time.thread_time()
        work()
        seconds.append(time.thread_time() - start)
    return min(seconds)


def _matrix_product() -> float:
    """Seconds per multiply-add of dense matrices in shapes as networks have them, copies and sums included."""
    net = network("Kmn,mi,nu->Kiu", [(96, 80, 80), (80, 24), (80, 80)])
    arrays = [np.ones(net.shape(labels)) for labels in net.inputs]
    with blas_threads(1):
        return _least(lambda: by_matrices(net, PAIRS, arrays), times=20) / multiply_adds(net, PAIRS)


def _probes() -> Iterator[Probe]:
    """Every kind of work in a nest where it counts, of about half a millisecond, within the caches and beyond."""
    # Rows that are added to rows: of the first cache, of the second, and of none.
    matrices = [("ik", DENSE), ("kj", DENSE), ("ij", DENSE)]
    for rows, inner, width in ((8192, 64, 4), (2048, 16, 256), (64, 256, 256), (8, 4096, 256)):
        yield _probe("ik,kj->ij", (_full(rows, inner), _full(inner, width)), ["ikj"], matrices)
    yield _probe("ik,kj->ij", (_full(256, 32), _full(32, 256)), ["kij"], matrices)
    # Sums to a scalar by vectors, and elements that do not follow one another.
    for inner, rows in ((16, 512), (256, 128)):
        yield _probe("ik,jk->ij", (_full(rows, inner), _full(64, inner)), ["ijk"],
                     [("ik", DENSE), ("jk", DENSE), ("ij", DENSE)])  # fmt: skip
    yield _probe("ik,kj->ij", (_full(64, 128), _full(128, 64)), ["ijk"], matrices)
    # A sparse matrix and a vector: rows of several lengths, then a vector that no cache holds.
    gathered = [("ij", ROWS), ("j", VECTOR), ("i", VECTOR)]
    scattered = [("ij", ROWS), ("i", VECTOR), ("j", VECTOR)]
    for rows, columns, length in ((2**17, 128, 1), (2**15, 128, 8), (2**12, 128, 64), (2**10, 2**20, 32)):
        matrix = _rows(rows, columns, length)
        yield _probe("ij,j->i", (matrix, _full(columns)), ["ij"], gathered)
        yield _probe("ij,i->j", (matrix, _full(rows)), ["ij"], scattered)
    # A sparse matrix and rows, again of each cache and of none.
    for width, rows in ((4, 2**14), (32, 2**13), (80, 2**12)):
        for columns in (2**6, 2**12, 2**20 // width):
            yield _probe("ij,jk->ik", (_rows(rows, columns, 8), _full(columns, width)), ["ijk"],
                         [("ij", ROWS), ("jk", DENSE), ("ik", DENSE)])  # fmt: skip
    # Coordinates that two operands have in common.
    for rows, length in ((2**13, 4), (2**10, 32)):
        pair = (_rows(rows, 256, length), _rows(rows, 256, length, seed=1))
        yield _probe("ij,ij->i", pair, ["ij"], [("ij", ROWS), ("ij", ROWS), ("i", VECTOR)])
    # Outer loops over stored coordinates, and over all values around innermost loops that are mostly empty.
    yield _probe("ij,j->i", (_rows(2**16, 128, 2, THIN), _full(128)), ["ij"], [("ij", THIN), *gathered[1:]])
    yield _probe("ijk,k->i", (_blocks(2**14, 16, 64), _full(64)), ["ijk"],
                 [("ijk", (*DENSE, "compressed")), ("k", VECTOR), ("i", VECTOR)])  # fmt: skip
    # Workspaces: arrays that are cleared, lists and hash tables.
    few = SparseTensor((1024,), (0,), _rows(1, 1024, 4).levels[1:], np.ones(4))
    yield _probe("ij,jk,k->i", (_rows(2**13, 256, 1), _rows(256, 1024, 4), few), ["ijk", "ik"],
                 [("ij", ROWS), ("jk", ROWS), ("k", ("compressed",)), ("i", VECTOR)], ((0, 1), 2))  # fmt: skip
    chain = (_rows(2**13, 512, 4), _rows(512, 1024, 4), _rows(1024, 4, 1))
    for space in ("listed", "hashed"):
        yield _probe("ij,jk,kl->il", chain, ["ijk", "ikl"],
                     [("ij", ROWS), ("jk", ROWS), ("kl", ROWS), ("il", DENSE)], ((0, 1), 2), space)  # fmt: skip
    # Networks in which several of these meet: two transformations of integrals, and factors of a sparse tensor.
    integrals = _cubes(128, 64, 64, 8)
    yield _probe("Kmn,mi,nu->Kiu", (integrals, _rows(64, 16, 2), _full(64, 64)), ["Kmin", "Kinu"],
                 [("Kmn", CUBE), ("mi", ROWS), ("nu", DENSE), ("Kiu", (*DENSE, "dense"))], ((0, 1), 2))  # fmt: skip
    yield _probe("ijk,jr,kr->ir", (_cubes(1024, 64, 1024, 2), _full(64, 32), _full(1024, 32)), ["ijkr", "ijr"],
                 [("ijk", CUBE), ("jr", DENSE), ("kr", DENSE), ("ir", DENSE)], ((0, 2), 1))  # fmt: skip
    # Results: sparse in order, sparse out of order, dense.
    yield _probe("ij,j->ij", (_rows(2**14, 512, 8), _full(512)), ["ij"], [("ij", ROWS), ("j", VECTOR), ("ij", ROWS)])
    yield _probe("ij,jk->ik", (_rows(512, 512, 4), _rows(512, 4096, 4)), ["ijk"],
                 [("ij", ROWS), ("jk", ROWS), ("ik", ROWS)])  # fmt: skip
    yield _probe("ij,j->ij", (_rows(1024, 1024, 1), _full(1024)), ["ij"], [("ij", ROWS), ("j", VECTOR), ("ij", DENSE)])


def _nothing() -> Probe:
    """A probe of one element, which takes the time of a call."""
    return _probe("ij,j->i", (_rows(1, 1, 1), _full(1)), ["ij"], [("ij", ROWS), ("j", VECTOR), ("i", VECTOR)])


def _probe(
    subscripts: str,
    operands: tuple[SparseTensor, ...],
    loops: Sequence[str],
    formats: Sequence[tuple[str, tuple[Kind, ...]]],
    tree: Tree | None = None,
    space: Space = "dense",
) -> Probe:
    net = network(subscripts, [x.shape for x in operands])
    whole: Tree = tuple(range(len(operands)))
    nest = fused(net, tree or whole, loops, sparse="compressed" in formats[-1][1], space=space)
    return Probe(replace(nest, formats=tuple(Format(tuple(order), kinds) for order, kinds in formats)), operands)


def _full(*shape: int) -> SparseTensor:
    return from_dense(np.ones(shape))


@cache
def _rows(rows: int, columns: int, length: int, kinds: tuple[Kind, ...] = ROWS, seed: int = 0) -> SparseTensor:
    """A matrix with so many elements in each row, one at random in each of as many equal parts of it."""
    part = columns // length
    places = np.arange(length) * part + np.random.default_rng(seed).integers(0, part, (rows, length))
    inner = Compressed(np.arange(rows + 1) * length, places.reshape(-1).astype(np.int32))
    outer = Dense(rows) if kinds[0] == "dense" else Compressed(np.array([0, rows]), np.arange(rows, dtype=np.int32))
    return SparseTensor((rows, columns), (0, 1), (outer, inner), np.ones(rows * length))


def _cubes(rows: int, columns: int, depth: int, length: int) -> SparseTensor:
    """A tensor of three modes with a quarter of all fibres along the last, of so many elements each."""
    outer, inner = _rows(rows, columns, columns // 4), _rows(rows * columns // 4, depth, length)
    return SparseTensor((rows, columns, depth), (0, 1, 2), (*outer.levels, *inner.levels[1:]), inner.values)


def _blocks(rows: int, columns: int, depth: int) -> SparseTensor:
    """One element in each matrix of a stack."""
    counts = np.zeros((rows, columns), np.int64)
    counts[:, 0] = 1
    positions = np.concatenate([[0], np.cumsum(counts)])
    inner = Compressed(positions, (np.arange(rows) % depth).astype(np.int32))
    return SparseTensor((rows, columns, depth), (0, 1, 2), (Dense(rows), Dense(columns), inner), np.ones(rows))
