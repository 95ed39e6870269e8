"""Tucker decomposition of a sparse tensor by higher-order orthogonal iteration (HOOI).

    python -m examples.tucker_hooi                                 # a made-up tensor
    python -m examples.tucker_hooi --tns nips.tns --ranks 8 8 8    # any file of FROSTT's form
    python -m examples.tucker_hooi --compare                       # beside TensorLy, from the same start

The work of a sweep is one TTMc for each mode (the tensor times all factors but one), here a plan of `trnqc.sparse`, and
the leading singular vectors of its unfolding. Prints the relative error |X - X'| / |X| after each sweep.
"""

from __future__ import annotations

import argparse
import string
import time
from pathlib import Path

import numpy as np

from examples.data.sparse_tensors import skewed
from trnqc import sparse


def ttmc_subscripts(modes: int, mode: int) -> str:
    """Of a tensor times all factors but one: "ijk,jb,kc->ibc" for mode 0."""
    letters, ranks = string.ascii_lowercase[8 : 8 + modes], string.ascii_uppercase[:modes]
    others = [n for n in range(modes) if n != mode]
    inputs = [letters, *(letters[n] + ranks[n] for n in others)]
    return ",".join(inputs) + "->" + letters[mode] + "".join(ranks[n] for n in others)


def hooi(
    tensor: sparse.SparseTensor, factors: list[np.ndarray], sweeps: int, threads: int = 1
) -> tuple[np.ndarray, list[np.ndarray], list[float]]:
    """Core [ranks], factors [extent, rank] with orthonormal columns, and the relative error after each sweep."""
    factors = [np.array(factor) for factor in factors]
    modes = range(tensor.ndim)
    plans = [sparse.plan(ttmc_subscripts(tensor.ndim, n), tensor, *_but(factors, n), out="dense") for n in modes]
    norm2 = float(np.sum(np.square(tensor.to_coo()[1])))
    errors = []
    for _ in range(sweeps):
        for n in modes:
            product = plans[n].run(tensor, *_but(factors, n), threads=threads)
            unfolded = product.reshape(len(product), -1)
            factors[n] = np.linalg.svd(unfolded, full_matrices=False)[0][:, : factors[n].shape[1]]
        core = np.tensordot(product, factors[-1], axes=(0, 0))
        errors.append(float(np.sqrt(abs(norm2 - np.sum(core**2)) / norm2)))
    return core, factors, errors


def by_tensorly(array: np.ndarray, factors: list[np.ndarray], sweeps: int) -> list[float]:
    """Relative errors of TensorLy's Tucker decomposition of the dense tensor from the same factors."""
    from tensorly.decomposition import partial_tucker

    ranks = tuple(factor.shape[1] for factor in factors)
    begin = (np.zeros(ranks), [np.array(factor) for factor in factors])
    _, errors = partial_tucker(array, ranks, modes=list(range(array.ndim)), init=begin, n_iter_max=sweeps, tol=0)
    return [float(error) for error in errors]


def start(shape: tuple[int, ...], ranks: list[int], seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [np.linalg.qr(rng.standard_normal((extent, rank)))[0] for extent, rank in zip(shape, ranks, strict=True)]


def _but(factors: list[np.ndarray], mode: int) -> list[np.ndarray]:
    return [factor for n, factor in enumerate(factors) if n != mode]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tns", type=Path, help="a tensor as text: coordinates from 1, then the value, a line each")
    parser.add_argument("--shape", type=int, nargs="+", default=[60, 50, 70], help="of the made-up tensor")
    parser.add_argument("--nnz", type=int, default=4000)
    parser.add_argument("--ranks", type=int, nargs="+", default=[6, 5, 4])
    parser.add_argument("--sweeps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compare", action="store_true", help="with TensorLy, which needs the dense tensor in memory")
    args = parser.parse_args(arguments)
    tensor = sparse.read_tns(args.tns) if args.tns else skewed(tuple(args.shape), args.nnz)
    print(tensor)
    factors = start(tensor.shape, args.ranks, seed=1)
    began = time.perf_counter()
    _, _, errors = hooi(tensor, factors, args.sweeps, args.threads)
    elapsed = time.perf_counter() - began
    theirs = by_tensorly(tensor.to_dense(), factors, args.sweeps) if args.compare else [None] * args.sweeps
    for sweep, (error, other) in enumerate(zip(errors, theirs), 1):
        print(f"sweep {sweep:3}: error {error:.12f}" + (f"  TensorLy {other:.12f}" if other is not None else ""))
    print(f"{elapsed:.2f} s, kernels compiled where they were not kept")


if __name__ == "__main__":
    main()
