"""Small jobs of every kind. Each compares its result with that of another program or of a plain formula.

    python -m scripts.soak.work [JOB ...] [--rounds 1] [--localised]

The last line of standard output is the number of jobs that were right. Errors are reported as the command ``trnqc``
reports them: one line and exit status 2 for an error of trnqc; anything else is a traceback.
"""

from __future__ import annotations

import argparse
import functools
import locale
import sys
import warnings
from typing import Any

import numpy as np

from trnqc.errors import TrnqcError

# Each job takes the number of its round, which decides its numbers. They repeat after this many rounds.
KINDS = 5


class Wrong(Exception):
    """A result that differs from the reference."""


def check(what: str, found: Any, expected: Any, tolerance: float) -> None:
    """Raise Wrong unless the largest difference, relative to the largest expected number, is below the tolerance."""
    found, expected = np.asarray(found), np.asarray(expected)
    error = abs(found - expected).max() / max(1.0, abs(expected).max()) if found.shape == expected.shape else np.inf
    if not error <= tolerance:
        raise Wrong(f"{what}: the error is {error:.1e}, expected at most {tolerance:.0e}")


@functools.cache
def _water(n: int) -> Any:
    """PySCF's converged RHF of water with one bond of another length, and its DF-MP2 energy."""
    from pyscf import gto, scf
    from pyscf.mp import dfmp2_native

    mol = gto.M(atom=f"O 0 0 0; H 0 0.757 0.587; H 0 {-0.757 - 0.01 * n} 0.587", basis="sto-3g", verbose=0)
    mf = scf.RHF(mol).run(conv_tol=1e-11)
    mp2 = dfmp2_native.DFMP2(mf, auxbasis="cc-pvdz-ri").run()
    return mf, mp2.e_corr


def scf(n: int) -> None:
    """An accelerated SCF, beside PySCF's."""
    from pyscf import scf as theirs

    import trnqc

    reference, _ = _water(n)
    mf = trnqc.accelerate(theirs.RHF(reference.mol), kernels="wait").run(conv_tol=1e-11)
    check("energy of the SCF", mf.e_tot, reference.e_tot, 1e-9)


def mp2(n: int) -> None:
    """DF-MP2, beside PySCF's."""
    import trnqc

    mf, e_corr = _water(n)
    # PySCF's auxiliary basis is that of the reference; digits beyond these depend on how its metric is inverted.
    check("energy of DF-MP2", trnqc.DFMP2(mf, "cc-pvdz-ri").run().e_corr, e_corr, 1e-7)


def einsum(n: int) -> None:
    """A dense network, beside NumPy."""
    import trnqc

    make = np.random.default_rng(n)
    arrays = [make.standard_normal((9 + n, 9 + n)) for _ in range(3)]
    check("einsum", trnqc.einsum("ij,jk,kl->il", *arrays), np.linalg.multi_dot(arrays), 1e-12)


def sparse(n: int) -> None:
    """A sparse matrix and two dense ones, beside NumPy."""
    from scipy.sparse import random_array

    from trnqc import sparse as ours

    make = np.random.default_rng(n)
    first = random_array((60, 50), density=0.1, format="csr", rng=make)
    others = [make.standard_normal((50, 8)), make.standard_normal((60, 8))]
    expected = np.einsum("ij,jk,ik->k", first.toarray(), *others)
    check("sparse network", ours.contract("ij,jk,ik->k", first, *others), expected, 1e-12)


@functools.cache
def _product() -> Any:
    from trnqc import cg

    paths = [(0, 0, 0, "uvu", True), (1, 1, 0, "uvu", True), (0, 1, 1, "uvu", True)]
    problem = cg.TPProblem("8x0e+8x1o", "1x0e+1x1o", "8x0e+8x1o", paths, shared_weights=False)
    return cg.TensorProduct(problem), cg.TensorProductConv(problem), problem


def _operands(n: int, rows: int) -> tuple[Any, ...]:
    import torch

    _, _, problem = _product()
    make = torch.Generator().manual_seed(n)
    sizes = (problem.irreps_in1.dim, problem.irreps_in2.dim, problem.weight_numel)
    return tuple(torch.randn(rows, size, generator=make) for size in sizes)


def cg(n: int) -> None:
    """A tensor product of irreps with its gradient: it is linear in x, so that the gradient times x is the product."""
    product, _, _ = _product()
    x, y, weights = _operands(n, 20)
    x.requires_grad_()
    total = product(x, y, weights).sum()
    total.backward()
    check("gradient of a tensor product", (x.grad * x).sum().item(), total.item(), 1e-5)


def convolution(n: int) -> None:
    """A convolution on a graph, beside the products of its edges added up."""
    import torch

    product, conv, _ = _product()
    x, y, weights = _operands(n, 24)
    senders, receivers = torch.randint(0, 12, (2, 24), generator=torch.Generator().manual_seed(n))
    nodes = x[:12]
    edges = product(nodes[senders], y, weights)
    expected = torch.zeros(12, edges.shape[1]).index_add_(0, receivers, edges)
    check("convolution", conv(nodes, y, weights, receivers, senders), expected, 1e-5)


def simulator(n: int) -> None:
    """The NKI kernels of MP2 on the simulator, beside the backend of the CPU."""
    from trnqc import mp2_energy
    from trnqc.mp2.pairs.pairs import ResultWarning

    make = np.random.default_rng(n)
    B, occupied, virtual = make.standard_normal((3, 5, 7)), -1.0 - make.random(3), 1.0 + make.random(5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResultWarning)  # Random factors are larger than those of molecules.
        ours = mp2_energy(B, occupied, virtual, backend="simulator", precision="fp32")
    reference = mp2_energy(B, occupied, virtual, backend="cpu")
    check("MP2 on the simulator", ours.e_corr_os / reference.e_corr_os, 1.0, 1e-5)


JOBS = {job.__name__: job for job in (scf, mp2, einsum, sparse, cg, convolution, simulator)}


def run(names: list[str], rounds: int = 1) -> int:
    """Do the jobs in turns. Returns how many were done."""
    for n in range(rounds):
        for name in names:
            JOBS[name](n % KINDS)
    return rounds * len(names)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", choices=[*JOBS, []])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--localised", action="store_true", help="take over the locale, as programs with windows do")
    asked = parser.parse_args()
    if asked.localised:
        locale.setlocale(locale.LC_ALL, "")
    try:
        print(run(asked.jobs or list(JOBS), asked.rounds))
    except TrnqcError as error:
        print(f"trnqc: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
