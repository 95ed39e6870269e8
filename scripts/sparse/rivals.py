"""Other libraries and compilers that compute the integrals, MTTKRP and TTMc, where they are installed.

TACO compiles loop nests (scripts/sparse/taco.py). None of the others takes a network as one nest: MKL's sparse BLAS
(the packages mkl and sparse_dot_mkl), SciPy and PyData sparse contract two tensors at a time, and store the
intermediate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import scipy.sparse

from scripts.sparse import taco
from trnqc import sparse

Work = Callable[[], Any]
Product = Callable[[Any, Any], Any]
# Elements of the integrals up to which PyData sparse takes seconds rather than minutes.
LARGEST_PYDATA = 2**20


def missing() -> list[str]:
    """Return the names of contestants that are not installed."""
    there = {"TACO": taco.installed(), "MKL": has_mkl(), "PyData sparse": find_spec("sparse") is not None}
    return [name for name, installed in there.items() if not installed]


def has_mkl() -> bool:
    """Return whether MKL's sparse BLAS can be called."""
    try:
        import sparse_dot_mkl  # noqa: F401
    except ImportError:  # also where the package is there without MKL's libraries
        return False
    return True


def of_integrals(operands: Mapping[str, Any], near: bool) -> dict[str, Work]:
    """Return those contestants for the integrals that are installed.

    Parameters
    ----------
    operands
        I, C, P and L of `examples.data.helium_lattice`.
    near
        Whether the map is an operand.
    """
    works: dict[str, Work] = {}
    if taco.installed():
        works |= by_taco(operands, near)
    if has_mkl():
        from sparse_dot_mkl import dot_product_mkl

        works["MKL"] = by_pairs(operands, near, dot_product_mkl)
    if find_spec("sparse") is not None and operands["I"].nnz <= LARGEST_PYDATA:
        works["PyData sparse"] = by_pydata(operands, near)
    return works


def by_taco(operands: Mapping[str, Any], near: bool) -> dict[str, Work]:
    """Return the nests of the CoNST paper, compiled by TACO; without the map also with K outermost."""
    (K, _, n), i, u = operands["I"].shape, operands["C"].shape[1], operands["P"].shape[1]
    packed = {"Int": csf(operands["I"], (0, 1, 2)), "Ct": csf(operands["C"], (1, 0))}
    kinds = ("dense", "compressed", "compressed")
    if near:
        packed |= {"P": csf(operands["P"], (0, 1)), "L": csf(operands["L"], (0, 1))}
        return {"TACO, paper's loops": taco.fastest("map", n, packed, (K, i, u), kinds, (0, 1, 2))}
    packed["Pt"] = csf(operands["P"], (1, 0))
    return {
        "TACO, paper's loops": taco.fastest("orbitals", n, packed, (i, K, u), kinds, (1, 0, 2)),
        "TACO, K outermost": taco.fastest("functions", n, packed, (K, i, u), kinds, (0, 1, 2)),
    }


def csf(tensor: Any, order: Sequence[int]) -> sparse.SparseTensor:
    """Return a tensor as CSR or CSF with its modes in this order, without its zeros."""
    if isinstance(tensor, np.ndarray):
        tensor = sparse.from_dense(tensor, kinds=["compressed"] * tensor.ndim)
    return tensor.repack(order, ("dense", *["compressed"] * (tensor.ndim - 1)))


def by_pairs(operands: Mapping[str, Any], near: bool, product: Product) -> Work:
    """Return two products of CSR matrices, [(K n), m] [m, i] and [(K i), n] [n, u]; near: with the map between them."""
    whole = operands["I"]
    (K, m, n), I = whole.to_coo()
    auxiliary, _, functions = whole.shape
    first = scipy.sparse.csr_array((I, (K * functions + n, m)), shape=(auxiliary * functions, whole.shape[1]))
    C, P = (
        scipy.sparse.csr_array(x if isinstance(x, np.ndarray) else x.to_scipy())
        for x in (operands[name] for name in "CP")
    )
    L = operands["L"].to_dense() != 0
    orbitals = C.shape[1]

    def work() -> Any:
        X = product(first, C).tocoo()
        row, i = X.coords
        k, at = np.divmod(row.astype(np.int64), functions)
        value = X.data
        if near:
            kept = L[k, i]
            k, at, i, value = k[kept], at[kept], i[kept], value[kept]
        second = scipy.sparse.csr_array((value, (k * orbitals + i, at)), shape=(auxiliary * orbitals, functions))
        return product(second, P)

    return work


def by_pydata(operands: Mapping[str, Any], near: bool) -> Work:
    """Return two calls of `sparse.tensordot`, with the map multiplied between them."""
    import sparse as pydata

    def converted(tensor: Any) -> Any:
        if isinstance(tensor, np.ndarray):
            return pydata.COO.from_numpy(tensor)
        coordinates, values = tensor.to_coo()
        return pydata.COO(coordinates, values, shape=tensor.shape)

    I, C, P, L = (converted(operands[name]) for name in "ICPL")

    def work() -> Any:
        X = pydata.tensordot(I, C, axes=((1,), (0,)))  # [K, n, i]
        if near:
            X = X * L[:, None, :]
        return pydata.tensordot(X, P, axes=((1,), (0,)))  # [K, i, u]

    return work


def of_factors(
    product: str, tensor: sparse.SparseTensor, order: Sequence[int], factors: Sequence[Any]
) -> dict[str, Work]:
    """Return SciPy's products of MTTKRP or TTMc, and TACO's nests if it is installed.

    Parameters
    ----------
    product
        "MTTKRP" or "TTMc".
    tensor, order
        The tensor, and its modes: that of the result first, the one contracted first last.
    factors
        The factors of the second and of the third of these modes.
    """
    works: dict[str, Work] = {"scipy": fibres_by_scipy(product, tensor, order, factors)}
    if not taco.installed():
        return works
    first, second = (sparse.from_dense(x, kinds=("dense", "dense")) for x in factors)
    rank = factors[1].shape[1]
    packed = {"T": csf(tensor, order), "B": first, "C": second}
    shape = (tensor.shape[order[0]], rank) if product == "MTTKRP" else (tensor.shape[order[0]], rank, rank)
    kinds, name = ("dense",) * len(shape), product.lower()
    nests = {"TACO, nary": name, "TACO, fused": f"{name}-fused"}
    return works | {
        label: taco.fastest(nest, rank, packed, shape, kinds, range(len(shape))) for label, nest in nests.items()
    }


def fibres_by_scipy(
    product: str, tensor: sparse.SparseTensor, order: Sequence[int], factors: Sequence[np.ndarray]
) -> Work:
    """Return two products of CSR matrices with dense ones: of all fibres with the last factor, then of their sums.

    MTTKRP multiplies the fibres by rows of the other factor in between, and TTMc takes a product for each column of it.
    See `of_factors`.
    """
    coordinates, values = tensor.repack(order, ("compressed",) * 3).to_coo()
    i, j, k = (coordinates[mode] for mode in order)
    begins = np.append(True, (i[1:] != i[:-1]) | (j[1:] != j[:-1]))
    starts = np.append(np.flatnonzero(begins), len(i))
    rows, second = i[begins], j[begins]
    fibres = scipy.sparse.csr_array((values, k, starts), shape=(len(rows), tensor.shape[order[2]]))
    positions = np.searchsorted(rows, np.arange(tensor.shape[order[0]] + 1))
    own = np.arange(len(rows))

    def summed(weights: np.ndarray) -> Any:
        return scipy.sparse.csr_array((weights, own, positions), shape=(tensor.shape[order[0]], len(rows)))

    def work() -> Any:
        inner, outer = fibres @ factors[1], factors[0][second]
        if product == "MTTKRP":
            return summed(np.ones(len(rows))) @ (inner * outer)
        return np.stack([summed(np.ascontiguousarray(column)) @ inner for column in outer.T], axis=1)

    return work
