"""Canonical polyadic decomposition of a sparse tensor by alternating least squares (CP-ALS).

    python -m examples.cp_als                                      # a made-up tensor
    python -m examples.cp_als --tns nips.tns --rank 16             # any file of FROSTT's form
    python -m examples.cp_als --compare                            # beside TensorLy, from the same start

The work of a sweep is one MTTKRP for each mode, here a plan of `trnqc.sparse`; what is left is small and dense. Prints
the relative error |X - X'| / |X| after each sweep.
"""

from __future__ import annotations

import argparse
import string
import time
from pathlib import Path

import numpy as np

from examples.data.sparse_tensors import skewed
from trnqc import sparse


def mttkrp_subscripts(modes: int, mode: int) -> str:
    """Of a matricised tensor times the Khatri-Rao product of all factors but one: "ijk,jr,kr->ir" for mode 0."""
    letters = string.ascii_lowercase[8 : 8 + modes]
    others = [f"{letter}z" for letter in letters if letter != letters[mode]]
    return ",".join([letters, *others]) + f"->{letters[mode]}z"


def cp_als(
    tensor: sparse.SparseTensor, factors: list[np.ndarray], sweeps: int, threads: int = 1
) -> tuple[list[np.ndarray], list[float]]:
    """Factors [extent, rank] of each mode after so many sweeps, and the relative error after each."""
    factors = [np.array(factor) for factor in factors]
    modes = range(tensor.ndim)
    plans = [sparse.plan(mttkrp_subscripts(tensor.ndim, n), tensor, *_but(factors, n), out="dense") for n in modes]
    norm2 = float(np.sum(np.square(tensor.to_coo()[1])))
    errors = []
    for _ in range(sweeps):
        for n in modes:
            product = plans[n].run(tensor, *_but(factors, n), threads=threads)
            gram = np.prod([factor.T @ factor for factor in _but(factors, n)], axis=0)
            factors[n] = np.linalg.solve(gram.T, product.T).T
        # <X, X'> and <X', X'> from the last mode's product: the model itself is never made.
        inner = np.sum(product * factors[-1])
        model2 = np.sum(gram * (factors[-1].T @ factors[-1]))
        errors.append(float(np.sqrt(abs(norm2 - 2 * inner + model2) / norm2)))
    return factors, errors


def by_tensorly(array: np.ndarray, factors: list[np.ndarray], sweeps: int) -> list[float]:
    """Relative errors of TensorLy's parafac on the dense tensor from the same factors."""
    from tensorly.cp_tensor import CPTensor
    from tensorly.decomposition import parafac

    start = CPTensor((np.ones(factors[0].shape[1]), [np.array(factor) for factor in factors]))
    rank = factors[0].shape[1]
    return [float(e) for e in parafac(array, rank, init=start, n_iter_max=sweeps, tol=0, return_errors=True)[1]]


def start(shape: tuple[int, ...], rank: int, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.random((extent, rank)) for extent in shape]


def _but(factors: list[np.ndarray], mode: int) -> list[np.ndarray]:
    return [factor for n, factor in enumerate(factors) if n != mode]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tns", type=Path, help="a tensor as text: coordinates from 1, then the value, a line each")
    parser.add_argument("--shape", type=int, nargs="+", default=[60, 50, 70], help="of the made-up tensor")
    parser.add_argument("--nnz", type=int, default=4000)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--sweeps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compare", action="store_true", help="with TensorLy, which needs the dense tensor in memory")
    args = parser.parse_args(arguments)
    tensor = sparse.read_tns(args.tns) if args.tns else skewed(tuple(args.shape), args.nnz)
    print(tensor)
    factors = start(tensor.shape, args.rank, seed=1)
    began = time.perf_counter()
    _, errors = cp_als(tensor, factors, args.sweeps, args.threads)
    elapsed = time.perf_counter() - began
    theirs = by_tensorly(tensor.to_dense(), factors, args.sweeps) if args.compare else [None] * args.sweeps
    for sweep, (error, other) in enumerate(zip(errors, theirs), 1):
        print(f"sweep {sweep:3}: error {error:.12f}" + (f"  TensorLy {other:.12f}" if other is not None else ""))
    print(f"{elapsed:.2f} s, kernels compiled where they were not kept")


if __name__ == "__main__":
    main()
