"""Tucker decomposition of a sparse tensor by higher-order orthogonal iteration (HOOI).

    python -m examples.tucker_hooi                                 # a made-up tensor
    python -m examples.tucker_hooi --tns nips.tns --ranks 8 8 8    # any file of FROSTT's form
    python -m examples.tucker_hooi --compare                       # beside TensorLy, from the same start

By `trnqc.sparse.tucker_hooi`. Prints the relative error |X - X'| / |X| after each sweep.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from examples.data.sparse_tensors import skewed
from trnqc import sparse


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
    model = sparse.tucker_hooi(tensor, args.ranks, args.sweeps, init=factors, tol=0, threads=args.threads)
    theirs = by_tensorly(tensor.to_dense(), factors, args.sweeps) if args.compare else [None] * args.sweeps
    for sweep, (error, other) in enumerate(zip(model.errors, theirs), 1):
        print(f"sweep {sweep:3}: error {error:.12f}" + (f"  TensorLy {other:.12f}" if other is not None else ""))
    print(f"{model}, kernels compiled where they were not kept")


if __name__ == "__main__":
    main()
