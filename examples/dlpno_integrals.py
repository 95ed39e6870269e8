"""Integrals of local correlation (DLPNO) over sparse tensors, each as one plan.

    python -m examples.dlpno_integrals             # 25 helium atoms
    python -m examples.dlpno_integrals --side 10   # 100 atoms, made once in about a minute

(1)  E[K i u] = sum over mu, nu of I[K mu nu] C[mu i] P[nu u]
(2)  the same where auxiliary function K lies near orbital i: times the 0/1 map L[K i]
(3)  V[i u j v] = sum over K of E[K i u] E[K j v], with E of (2)

I are three-index integrals, C localised orbitals, P projected atomic orbitals. Prints each plan, its time, and the
largest difference from dense matrix products over the largest element.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from examples.data.helium_lattice import SETS, lattice
from trnqc import sparse

ONE, TWO, THREE = "Kmn,mi,nu->Kiu", "Kmn,mi,nu,Ki->Kiu", "Kiu,Kjv->iujv"


def solved(subscripts: str, operands: tuple[Any, ...], threads: int, show: Callable[[str], None] = print) -> Any:
    """The result of one plan, run twice: the first time compiles and packs."""
    plan = sparse.plan(subscripts, *operands)
    plan.run(threads=threads)
    start = time.perf_counter()
    result = plan.run(threads=threads)
    show(f"\n{plan}\nran in {(time.perf_counter() - start) * 1e3:.3g} ms")
    return result


def as_dense(x: Any) -> np.ndarray:
    return x if isinstance(x, np.ndarray) else x.to_dense()


def difference(result: Any, expected: np.ndarray) -> float:
    """Largest difference over the largest element of what was expected."""
    return float(np.abs(as_dense(result) - expected).max() / np.abs(expected).max())


def transformed(I: Any, C: Any, P: Any) -> np.ndarray:
    """(1) by dense matrix products, an auxiliary function at a time."""
    I, C, P = map(as_dense, (I, C, P))
    return np.stack([C.T @ block @ P for block in I])


def main(arguments: list[str] | None = None) -> dict[int, float]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", type=int, choices=(5, 10), default=5, help="atoms along an edge of the lattice")
    parser.add_argument("--set", choices=SETS, default="B", help="A: small integrals too, P dense; B: all above 1e-4")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    x = lattice(options.side).operands(SETS[options.set])
    I, C, P, L = (x[name] for name in "ICPL")
    for name, tensor in x.items():
        print(f"{name}: {tensor if not isinstance(tensor, np.ndarray) else f'dense {tensor.shape}'}")
    expected = transformed(I, C, P)
    differences = {1: difference(solved(ONE, (I, C, P), options.threads), expected)}
    E = solved(TWO, (I, C, P, L), options.threads)
    expected *= as_dense(L)[:, :, None]
    differences[2] = difference(E, expected)
    if options.side == 5:  # the result of (3) for 100 atoms has 9e8 elements
        flat = expected.reshape(len(expected), -1)
        V = (flat.T @ flat).reshape(expected.shape[1:] * 2)
        differences[3] = difference(solved(THREE, (E, E), options.threads), V)
    print("\n" + "\n".join(f"({equation}) differs by {error:.1e}" for equation, error in differences.items()))
    return differences


if __name__ == "__main__":
    main()
