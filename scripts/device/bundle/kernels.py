"""The kernels of the first run, compiled for GPUs of some architectures into the cache of TRNQC_CACHE_DIR.

    TRNQC_CACHE_DIR=FOLDER python -m scripts.device.bundle.kernels sm_80 sm_90 [--only checks]

The host code of a GPU runs on a device that builds kernels as a GPU does, and neither keeps nor computes anything. The
last line that is printed is JSON: the version of NVRTC, and the number of cubins.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from pyscf import gto

from scripts.device import bench_cg
from scripts.device.contractions import passes as contraction_passes
from scripts.device.first_run.checks import CONTRACTIONS, TENSOR_PRODUCTS, atoms
from scripts.device.first_run.table import MOLECULES, MOMENTA, PRECISIONS, PROBLEMS
from scripts.device.shapes import PRESETS, factors
from scripts.eri.counting_device import CountingDevice
from scripts.workloads.contractions import contraction
from scripts.workloads.contractions import operands as contraction_operands
from trnqc.backends.cuda.pairs import CudaPairStep
from trnqc.backends.cuda.products import Gpu
from trnqc.backends.pair_step import PairOptions
from trnqc.cg.cuda.contraction_engine import CudaContractionEngine
from trnqc.cg.cuda.engine import CudaEngine
from trnqc.cg.problem.graph import EdgeGraph
from trnqc.cg.programs.directions import DIRECTIONS
from trnqc.eri.cuda.forms import first_sound
from trnqc.eri.jk.batch import Batch
from trnqc.eri.jk.builder import JKBuilder
from trnqc.jit import Recipe, build_all
from trnqc.jit.cubin_builder import CubinBuilder
from trnqc.jit.device import BuiltKernel
from trnqc.mp2.reference.molecule import build_mole, load_geometry

Job = tuple[str, Callable[[], Any]]


class BuildingDevice(CountingDevice):
    """A device that builds kernels for an architecture, and computes nothing."""

    def __init__(self, builder: CubinBuilder) -> None:
        super().__init__()
        self.builder, self.name, self.arch = builder, builder.name, builder.arch

    def build(self, recipe: Recipe, lanes: int, *, accumulate: str = "fence", min_blocks: int = 0) -> BuiltKernel:
        return self.builder.build(recipe, lanes, accumulate=accumulate, min_blocks=min_blocks)


class _NoProducts:
    """Products that are not computed."""

    label = "no products"

    def multiply(self, *_: Any, **__: Any) -> None:
        """Nothing."""


def jobs(builder: CubinBuilder, only: str) -> Iterator[Job]:
    """The kernels of the checks, and of the benchmarks if `only` is "all", each under a name."""
    molecules = [atoms((0, l)) for l in MOMENTA]
    problems: dict[str, tuple[str, ...]] = dict.fromkeys(TENSOR_PRODUCTS, ("float64", "float32"))
    if only == "all":
        molecules += [build_mole(load_geometry(case.split("/")[0]), case.split("/")[1]) for case in MOLECULES]
        problems |= dict.fromkeys(PROBLEMS, ("float32",))
    batches = dict.fromkeys(batch for mol in molecules for batch in batches_of(mol))
    for batch in batches:
        yield f"{builder.arch} {batch.name}", partial(first_sound, builder, batch)
    for label, dtypes in problems.items():
        for dtype in dtypes:
            yield f"{builder.arch} {label} {dtype}", partial(tensor_products, builder, label, dtype)
    for label in CONTRACTIONS:
        for dtype in ("float64", "float32"):
            yield f"{builder.arch} contraction of {label} {dtype}", partial(contractions, builder, label, dtype)
    for precision in PRECISIONS:
        yield f"{builder.arch} mp2 {precision}", partial(pair_energies, builder, precision)


def batches_of(mol: gto.Mole) -> list[Batch]:
    """The batches that a restricted SCF job asks for: J and K together."""
    return [Batch(cls, True, True) for cls in JKBuilder(mol).classes()]


def tensor_products(builder: CubinBuilder, label: str, dtype: str) -> None:
    """All passes over a batch and a graph, whose nodes with many edges need the kernel of sums too."""
    problem, device = bench_cg.problem_of(label), BuildingDevice(builder)
    ends = np.zeros(600, np.int64)
    for atomic in (False, True):
        engine = CudaEngine(problem, dtype, device, atomic=atomic)
        for name in (
            ("conv_forward", "conv_backward") if atomic else (*bench_cg.BATCHES, "conv_forward", "conv_backward")
        ):
            graph = {"graph": EdgeGraph(ends, ends, 1)} if name.startswith("conv") else {}
            inputs = bench_cg.operands(problem, len(ends), dtype, 1 if graph else None)
            getattr(engine, name)(*(inputs[n] for n in DIRECTIONS[name].reads), **graph)


def contractions(builder: CubinBuilder, label: str, dtype: str) -> None:
    """All passes of a symmetric contraction, with several ranges of nodes of an element, so that these are summed."""
    problem = contraction(label)
    _, given = contraction_operands(problem, dtype, 20, 1)
    for work in contraction_passes(CudaContractionEngine(problem, dtype, BuildingDevice(builder)), given).values():
        work()


def pair_energies(builder: CubinBuilder, precision: str) -> None:
    """The pair step of MP2."""
    gpu = Gpu(BuildingDevice(builder), _NoProducts(), None)  # type: ignore[arg-type]  # No system is solved here.
    CudaPairStep((gpu,), PairOptions(precision)).triangle(*factors(*PRESETS["tiny"]), None)


def main(argv: Sequence[str] | None = None) -> None:
    """Compile."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("archs", nargs="+")
    parser.add_argument("--only", choices=("all", "checks"), default="all")
    asked = parser.parse_args(argv)
    builders = [CubinBuilder(arch) for arch in asked.archs]
    wanted = dict(job for builder in builders for job in jobs(builder, asked.only))
    results = build_all(wanted, progress=lambda done, total, name: print(f"{done} of {total}: {name}", flush=True))
    failed = {name: str(error) for name, error in results.items() if isinstance(error, Exception)}
    try:
        package = importlib.metadata.version("nvidia-cuda-nvrtc")
    except importlib.metadata.PackageNotFoundError:
        package = ""
    compiled = sum(len(builder.compiled) for builder in builders)
    facts = {"nvrtc": builders[0].nvrtc, "package": package, "compiled": compiled, "failed": failed}
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
