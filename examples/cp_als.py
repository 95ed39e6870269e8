"""Canonical polyadic decomposition of a sparse tensor by alternating least squares (CP-ALS).

    python -m examples.cp_als                                      # a made-up tensor
    python -m examples.cp_als --tns nips.tns --rank 16             # any file of FROSTT's form
    python -m examples.cp_als --compare                            # beside TensorLy, from the same start

By `trnqc.sparse.cp_als`. Prints the relative error |X - X'| / |X| after each sweep.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from examples.data.sparse_tensors import skewed
from trnqc import sparse


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
    model = sparse.cp_als(tensor, args.rank, args.sweeps, init=factors, tol=0, threads=args.threads)
    theirs = by_tensorly(tensor.to_dense(), factors, args.sweeps) if args.compare else [None] * args.sweeps
    for sweep, (error, other) in enumerate(zip(model.errors, theirs), 1):
        print(f"sweep {sweep:3}: error {error:.12f}" + (f"  TensorLy {other:.12f}" if other is not None else ""))
    print(f"{model}, kernels compiled where they were not kept")


if __name__ == "__main__":
    main()
