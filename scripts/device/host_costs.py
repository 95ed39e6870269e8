"""Launches, copies and host time of GPU jobs, counted on a driver that does nothing.

    python -m scripts.device.host_costs [--molecules water5 water20] [--basis 6-31g*] [--out FILE]

All code of the host runs, and kernels do not, so that its CPU time is what the host takes for a build of J and K, a
cycle of an SCF, an energy of MP2, or energy and forces of a MACE model, while a GPU computes; other programs on the
machine change it little. Cycles of an SCF are counted with all matrices on the GPU, and with those of J and K alone,
for which PySCF extrapolates, diagonalises and makes the density. Of MACE only our operators are timed, since PyTorch's
run on a stand-in (mace_step.py). A first call, which
compiles and uploads tables, is counted apart. The record is profiles/counted/host_costs.json.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from pyscf import scf

from scripts.device.mace_step import SIZES, mace_step
from scripts.device.recording_driver import Call, RecordedDevice, RecordingDriver
from scripts.device.shapes import PRESETS, factors
from scripts.registry import Benchmark, Rows, listing, main, several
from trnqc.backends.cuda import products, solvers
from trnqc.backends.cuda.pairs import CudaPairStep
from trnqc.backends.cuda.products import CublasProducts, Gpu
from trnqc.backends.cuda.solvers import CusolverSolvers
from trnqc.backends.pair_step import PairOptions
from trnqc.eri.cuda.builder import CudaJKBuilder
from trnqc.eri.cuda.scf.extrapolation import DiisCoefficients
from trnqc.eri.cuda.scf.matrices import Matrices, Problem, ScfDevice
from trnqc.jit.device import BuiltKernel, CudaDevice
from trnqc.jit.recipe import Recipe
from trnqc.mp2.reference.molecule import build_mole, load_geometry

# The least of so many times counts, because other programs may run beside.
ROUNDS = 60
# Calls for which the host does not wait, and whose work another part of the machine does.
ENGINES = frozenset({"Buffer.fill", "cuMemcpyHtoDAsync"})


class IdleDevice(RecordedDevice):
    """A GPU on a recording driver, whose kernels are emitted and never run."""

    def build(self, recipe: Recipe, lanes: int, *, accumulate: str = "fence", min_blocks: int = 0) -> BuiltKernel:
        """Build a kernel as `CudaDevice` does, by the stand-in for NVRTC."""
        built = CudaDevice.build(self, recipe, lanes, accumulate=accumulate, min_blocks=min_blocks)
        handle = SimpleNamespace(name=built.signature.name, run=lambda operands, groups: None)
        return replace(built, handle=handle, warps=0)


class IdleDriver(RecordingDriver):
    """A recording driver which leaves out what a GPU's own engines do: kernels, fills and copies to its memory."""

    def do(self, call: Call, action: Callable[[], Any]) -> None:
        """Record a call, and run it unless it fills or copies."""
        super().do(call, (lambda: None) if call.name in ENGINES else action)

    def replay(self, actions: list[Callable[[], Any]]) -> None:
        """Return: kernels do nothing."""

    def memory_of(self, nbytes: int) -> np.ndarray:
        """Return zeros, which fills would write."""
        return np.zeros(nbytes, np.uint8)


class _IdleBlas:
    """cuBLAS whose products do nothing."""

    Operation = SimpleNamespace(N=0, T=1)
    ComputeType = SimpleNamespace(COMPUTE_32F=68, COMPUTE_64F=70)
    GemmAlgo = SimpleNamespace(DFALT=-1)
    FillMode = SimpleNamespace(LOWER=0, UPPER=1)

    def __init__(self, driver: RecordingDriver) -> None:
        self.driver = driver

    def create(self) -> int:
        return 1

    def set_stream(self, handle: int, stream: int) -> None:
        pass

    def get_version(self, handle: int) -> int:
        return 130000

    def gemm_ex(self, *arguments: Any) -> None:
        self.driver.calls.append(Call("gemm_ex"))

    def gemm_strided_batched_ex(self, *arguments: Any) -> None:
        self.driver.calls.append(Call("gemm_strided_batched_ex"))


class _IdleSolver(_IdleBlas):
    """cuSOLVER whose eigenvectors are not computed. Its workspace has about the size that two matrices have."""

    def dsyevd_buffer_size(self, handle: int, mode: int, triangle: int, n: int, *places: int) -> int:
        return 2 * n * n

    def dsyevd(self, *arguments: Any) -> None:
        self.driver.calls.append(Call("dsyevd"))


def seconds_of(work: Callable[[], Any]) -> float:
    """The CPU seconds of one call, on all threads."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def counted(
    driver: RecordingDriver, work: Callable[[], Any], timed: Callable[[Callable[[], Any]], float] = seconds_of
) -> dict[str, Any]:
    """Counts of one call, and the least seconds of several by `timed`, which come before: some captures a graph."""
    seconds = min(timed(work) for _ in range(ROUNDS))
    driver.calls.clear()
    work()
    calls = list(driver.calls)
    by_name = {
        name: [call for call in calls if call.name == name] for name in dict.fromkeys(call.name for call in calls)
    }
    graphs = by_name.get("Graph.launch", [])
    launches = len(by_name.get("launch", [])) + sum(graph.launches for graph in graphs)
    return {
        "launches": launches,
        "graphs": len(graphs),
        "operators of PyTorch": len(by_name.get("torch", [])),
        "products": len(by_name.get("gemm_ex", [])) + len(by_name.get("gemm_strided_batched_ex", [])),
        "eigenproblems": len(by_name.get("dsyevd", [])),
        "uploads": len(by_name.get("cuMemcpyHtoDAsync", [])),
        "uploaded_bytes": sum(call.nbytes for call in by_name.get("cuMemcpyHtoDAsync", [])),
        "downloads": len(by_name.get("cuMemcpyDtoHAsync", [])),
        "downloaded_bytes": sum(call.nbytes for call in by_name.get("cuMemcpyDtoHAsync", [])),
        "allocations": len(by_name.get("Device.allocate", [])),
        "waits": len(by_name.get("Stream.sync", [])) + len(by_name.get("cuStreamSynchronize", [])),
        "host_seconds": seconds,
        "host_seconds_a_launch": seconds / max(1, launches),
    }


def coulomb_exchange(title: str, basis: str) -> dict[str, Any]:
    """A build of J and K with the density of superposed atoms."""
    mol = build_mole(load_geometry(title), basis)
    driver = IdleDriver()
    builder = CudaJKBuilder(mol, devices=[IdleDevice(driver, lanes=1024)])
    dm = scf.hf.init_guess_by_minao(mol)
    first = seconds_of(lambda: builder.get_jk(dm))
    row = counted(driver, lambda: builder.get_jk(dm))
    return {"case": f"J and K, {title}/{basis}", "orbitals": mol.nao_nr(), "first_seconds": first} | row


def cycle_on_gpu(title: str, basis: str) -> dict[str, Any]:
    """A cycle of an RHF whose matrices are all on the GPU, with eight vectors of DIIS."""
    mf = scf.RHF(build_mole(load_geometry(title), basis))
    driver = IdleDriver(memory=1 << 36)
    overlap = mf.get_ovlp()
    occupied = (mf.mol.nelectron // 2,)
    x = mf.check_linear_dependency(overlap)
    density = mf.get_init_guess()[None]
    problem = Problem(mf.get_hcore(), overlap, x, density, occupied, incremental=True)
    with _idle_products(driver):
        place = ScfDevice.of(CudaJKBuilder(mf.mol, devices=[IdleDevice(driver, lanes=1024)]))
        begin = time.perf_counter()
        with Matrices(place, problem, DiisCoefficients(mf, mf.diis_space)) as matrices:
            matrices.start(True)

            def cycle() -> None:
                matrices.orbitals(True)
                matrices.step(True)

            for _ in range(mf.diis_space):
                cycle()
            first = time.perf_counter() - begin
            row = counted(driver, cycle)
    return _cycle_row(f"SCF cycle, {title}/{basis}", mf.mol, first, row)


def cycle_on_host(title: str, basis: str) -> dict[str, Any]:
    """The same with J and K alone on the GPU, by the steps of PySCF's `scf.hf.kernel`."""
    mf = scf.RHF(build_mole(load_geometry(title), basis))
    driver = IdleDriver()
    builder = CudaJKBuilder(mf.mol, devices=[IdleDevice(driver, lanes=1024)])
    mf.get_jk = lambda mol, dm, hermi=1, **options: builder.get_jk(dm, hermi)
    s, h, begin = mf.get_ovlp(), mf.get_hcore(), time.perf_counter()
    x, first_dm, random = mf.check_linear_dependency(s), mf.get_init_guess(), np.random.default_rng(0)
    diis, vhf = mf.DIIS(mf), mf.get_veff(mf.mol, first_dm)
    diis.Corth = x

    def cycle() -> None:
        # J and K of kernels that do not run are zero: without other densities, all errors of DIIS would be the same.
        noise = 0.01 * random.normal(size=first_dm.shape)
        last = first_dm + noise + noise.T
        energies, orbitals = mf.eig(mf.get_fock(h, s, vhf, last, 1, diis), s, x=x)
        occupations = mf.get_occ(energies, orbitals)
        dm = mf.make_rdm1(orbitals, occupations)
        fock = mf.get_fock(h, s, mf.get_veff(mf.mol, dm, last, vhf), dm)
        mf.energy_tot(dm, h, vhf)
        mf.get_grad(orbitals, occupations, fock)

    for _ in range(mf.diis_space):
        cycle()
    first = time.perf_counter() - begin
    row = counted(driver, cycle)
    return _cycle_row(f"SCF cycle, {title}/{basis}, J and K alone on the GPU", mf.mol, first, row)


def _cycle_row(case: str, mol: Any, first: float, row: dict[str, Any]) -> dict[str, Any]:
    moved = row["uploaded_bytes"] + row["downloaded_bytes"]
    sizes = {"orbitals": mol.nao_nr(), "matrix_bytes": 8 * mol.nao_nr() ** 2, "moved_bytes": moved}
    return {"case": case, "first_seconds": first} | sizes | row | {"moved_bytes_a_function": moved / mol.nao_nr()}


def pair_energies(preset: str, precision: str) -> dict[str, Any]:
    """The pair energies of MP2 of random factors."""
    driver = IdleDriver(memory=1 << 36)
    device = IdleDevice(driver, lanes=1024)
    B, eps_occ, eps_vir = factors(*PRESETS[preset])
    with _idle_products(driver):
        step = CudaPairStep((Gpu(device, CublasProducts(device), CusolverSolvers(device)),), PairOptions(precision))
        first = seconds_of(lambda: step.triangle(B, eps_occ, eps_vir, None))
        row = counted(driver, lambda: step.triangle(B, eps_occ, eps_vir, None))
    return {"case": f"MP2, {preset}, {precision}", "shape": PRESETS[preset], "first_seconds": first} | row


def energy_and_forces(title: str) -> dict[str, Any]:
    """Energy and forces of a MACE model, whose edges are those of the step before."""
    driver = IdleDriver()
    with mace_step(SIZES[title], IdleDevice(driver, lanes=1024)) as (step, clock):
        first = clock.of(step)
        row = counted(driver, step, clock.of)
    return {"case": f"MACE step, {title}", "size": asdict(SIZES[title]), "first_seconds": first} | row


@contextmanager
def _idle_products(driver: RecordingDriver) -> Iterator[None]:
    with (
        mock.patch.object(products, "cublas", lambda: _IdleBlas(driver)),
        mock.patch.object(solvers, "cublas", lambda: _IdleBlas(driver)),
        mock.patch.object(solvers, "cusolver", lambda: _IdleSolver(driver)),
    ):
        yield


def rows(asked: argparse.Namespace) -> Rows:
    """J and K, cycles, MP2 and MACE."""
    for title in asked.molecules:
        yield coulomb_exchange(title, asked.basis)
    for title in asked.molecules:
        yield cycle_on_host(title, asked.basis)
        yield cycle_on_gpu(title, asked.basis)
    for preset in asked.presets:
        yield pair_energies(preset, "fp32")
    for title in asked.mace:
        yield energy_and_forces(title)


BENCHMARK = Benchmark(
    "host_costs",
    __doc__,
    {"host": rows},
    {
        "--molecules": several(["water5", "water20"], nargs="*"),
        "--basis": {"default": "6-31g*"},
        "--presets": several(["small", "medium"], nargs="*", choices=PRESETS),
        "--mace": several(["mace-medium"], nargs="*", choices=SIZES),
    },
    place=("", "rows"),
    table=listing(
        dict.fromkeys(("case", "launches", "graphs", "operators of PyTorch", "products"))
        | {
            "kB up": lambda row: f"{row['uploaded_bytes'] / 1e3:.1f}",
            "kB down": lambda row: f"{row['downloaded_bytes'] / 1e3:.1f}",
            "allocations": None,
            "waits": None,
            "host ms": lambda row: f"{row['host_seconds'] * 1e3:.1f}",
            "us a launch": lambda row: f"{row['host_seconds_a_launch'] * 1e6:.0f}",
        },
        width=140,
    ),
    folder="counted",
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
