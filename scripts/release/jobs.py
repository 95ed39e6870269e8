"""What `scripts.release.kernels` compiles in processes of its own, by jobs that need it.

python -m scripts.release.jobs quadrature cc-pvdz cc-pvdz-jkfit     # kernels of exchange and correlation
python -m scripts.release.jobs driver                               # the driver of MACE models, in C++
"""

from __future__ import annotations

import argparse

from pyscf import dft, gto

import trnqc
from trnqc.mace.driver.driver import driver_library

# H, C, N and O, which have all angular momenta of the common basis sets; Angstrom.
FORMAMIDE = """
C -0.1645  0.3864 0.0000
O -1.2303 -0.1834 0.0000
N  1.0431 -0.2279 0.0000
H -0.1112  1.4890 0.0000
H  1.0989 -1.2343 0.0000
H  1.8983  0.3025 0.0000
"""
# One functional of each kind: density, its gradient, its kinetic energy density, and non-local correlation.
FUNCTIONALS = ("lda,vwn", "b3lyp", "r2scan", "wb97m-v")


def quadrature(basis: str, auxbasis: str) -> None:
    """Run an energy and a gradient with each kind of functional on a coarse grid."""
    mol = gto.M(atom=FORMAMIDE, basis=basis, verbose=0)
    for xc in FUNCTIONALS:
        mf = dft.RKS(mol, xc=xc).density_fit(auxbasis)
        mf.set(grids=dft.Grids(mol).set(level=0), max_cycle=2)
        mf.nlcgrids = dft.Grids(mol).set(level=0)
        trnqc.accelerate(mf, kernels="wait").run().nuc_grad_method().kernel()


def driver() -> None:
    """Compile the driver of MACE models.

    The operators of `trnqc.cg` in C++ are left out: they are linked with the libraries of one build of PyTorch, which
    wheels for many Linux systems may not be.
    """
    print(driver_library())


def main() -> None:
    """Read the arguments, and run the job."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    of_basis = kinds.add_parser("quadrature")
    of_basis.add_argument("basis")
    of_basis.add_argument("auxbasis")
    kinds.add_parser("driver")
    args = parser.parse_args()
    if args.kind == "quadrature":
        quadrature(args.basis, args.auxbasis)
    else:
        driver()


if __name__ == "__main__":
    main()
