"""J, K and SCF iterations on GPUs: right first, then timed, beside gpu4pyscf where it is installed.

    python -m scripts.device.bench_eri [water20/cc-pvdz aspirin/cc-pvtz ...] [--rounds 3] [--tiers split] [--out FILE]
    python -m scripts.device.bench_eri water/sto-3g --simulate        every step but the GPU: no figure counts

Each case is a molecule of examples/molecules and a basis. The gate: J and K of a superposition of atoms agree with
PySCF's to 1e-9 where that is not too long, and energies with gpu4pyscf's, or else PySCF's, to 1e-8 Hartree.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from pyscf import gto, scf

from scripts import registry
from scripts.registry import Benchmark, Rows, number
from trnqc.eri.cuda.builder import CudaJKBuilder
from trnqc.eri.cuda.tiers import NAMES
from trnqc.jit.device import Device, cuda_devices
from trnqc.jit.simulated_device import SimulatedDevice
from trnqc.mp2.reference.molecule import build_mole, load_geometry

CASES = ("water20/cc-pvdz", "aspirin/cc-pvtz", "aspirin/cc-pvqz")
GATE_JK, GATE_ENERGY = 1e-9, 1e-8
# Orbitals up to which PySCF's own J and K are waited for.
CHECKED = 300


def timed(work: Callable[[], Any], rounds: int) -> tuple[Any, list[float]]:
    """The last answer, and wall seconds of each round after one that is dropped."""
    seconds = []
    for _ in range(rounds + 1):
        begin = time.perf_counter()
        answer = work()
        seconds.append(time.perf_counter() - begin)
    return answer, seconds[1:]


class OnDevices(scf.hf.RHF):
    """RHF with J and K from a builder, direct and incremental."""

    builder: CudaJKBuilder

    def get_jk(self, mol: Any = None, dm: Any = None, hermi: int = 1, with_j: bool = True, with_k: bool = True,
               omega: Any = None) -> Any:  # fmt: skip
        return self.builder.get_jk(np.asarray(self.make_rdm1() if dm is None else dm), hermi, with_j, with_k)


def case(title: str, devices: Sequence[Device], rounds: int, tiers: Sequence[str] = ()) -> dict[str, Any]:
    """Raises AssertionError when the gate is not passed."""
    name, _, basis = title.partition("/")
    mol = build_mole(load_geometry(name), basis)
    dm = scf.hf.init_guess_by_minao(mol)
    begin = time.perf_counter()
    builder = CudaJKBuilder(mol, devices=devices, tiers=tiers)
    builder.get_jk(dm)
    row: dict[str, Any] = {"case": title, "orbitals": mol.nao_nr(), "devices": [d.name for d in devices]}
    row |= {"tiers": list(tiers), "first_build_s": time.perf_counter() - begin, "notes": builder.notes}
    (vj, vk), row["jk_s"] = timed(lambda: builder.get_jk(dm), rounds)
    if mol.nao_nr() <= CHECKED:
        row["jk_error"] = max(float(abs(a - b).max()) for a, b in zip((vj, vk), scf.hf.get_jk(mol, dm)))
        assert row["jk_error"] <= GATE_JK, f"{title}: J or K is off by {row['jk_error']:.1e}, allowed {GATE_JK}"
    ours = OnDevices(mol)
    ours.builder = builder
    row |= scf_of(ours, dm)
    peer, row["gpu4pyscf_absent"] = peer_of(mol, dm, rounds)
    if peer:
        row["gpu4pyscf"] = peer
        row["ratio_jk"] = median(peer["jk_s"]) / median(row["jk_s"])
        row["ratio_iteration"] = peer["iteration_s"] / row["iteration_s"]
        assert abs(peer["energy"] - row["energy"]) <= GATE_ENERGY, f"{title}: energies differ"
    elif mol.nao_nr() <= CHECKED:
        row["energy_error"] = abs(row["energy"] - scf.RHF(mol).run(conv_tol=1e-10).e_tot)
        assert row["energy_error"] <= GATE_ENERGY, f"{title}: the energy is off by {row['energy_error']:.1e} Hartree"
    return row


def scf_of(mf: Any, dm: np.ndarray) -> dict[str, Any]:
    mf.verbose, mf.conv_tol = 0, 1e-10
    begin = time.perf_counter()
    energy = float(mf.kernel(dm))
    seconds = time.perf_counter() - begin
    cycles = max(1, int(getattr(mf, "cycles", 0) or 1))
    return {"energy": energy, "cycles": cycles, "scf_s": seconds, "iteration_s": seconds / cycles}


def peer_of(mol: gto.Mole, dm: np.ndarray, rounds: int) -> tuple[dict[str, Any], str]:
    """The same of gpu4pyscf, or nothing and the reason."""
    if not importlib.util.find_spec("gpu4pyscf"):
        return {}, "it is not installed"
    try:
        return gpu4pyscf(mol, dm, rounds), ""
    except Exception as error:  # It fails in ways of its own, such as a build for another CUDA; ours is timed already.
        return {}, f"{type(error).__name__}: {error}"


def gpu4pyscf(mol: gto.Mole, dm: np.ndarray, rounds: int) -> dict[str, Any]:
    """The same of gpu4pyscf."""
    import cupy
    import gpu4pyscf
    from gpu4pyscf import scf as gpu_scf

    mf = gpu_scf.RHF(mol)
    there = cupy.asarray(dm)

    def build() -> None:
        mf.get_jk(mol, there)
        cupy.cuda.Device().synchronize()

    _, seconds = timed(build, rounds)
    return {"version": gpu4pyscf.__version__, "jk_s": seconds, **scf_of(mf, dm)}


def opened(asked: argparse.Namespace) -> str:
    """Open all GPUs, or two simulated ones."""
    simulated: Sequence[Device] = [SimulatedDevice(f"simulated {n}", lanes=8) for n in range(2)]
    asked.devices = simulated if asked.simulate else cuda_devices()
    return str(asked.devices[0].name)


def rows(asked: argparse.Namespace) -> Rows:
    """The rows of the cases."""
    for title in asked.cases:
        yield case(title, asked.devices, asked.rounds, asked.tiers)


def line(row: dict[str, Any]) -> str:
    """Seconds of J and K and of an iteration."""
    beside = f", {row['ratio_jk']:.2f} times gpu4pyscf" if "ratio_jk" in row else ""
    return f"{row['case']}: J and K {median(row['jk_s']):.3f} s{beside}, iteration {row['iteration_s']:.3f} s"


BENCHMARK = Benchmark(
    "eri",
    __doc__,
    {"SCF": rows},
    {
        "cases": {"nargs": "*", "default": list(CASES), "metavar": "molecule/basis"},
        "--rounds": number(3),
        "--tiers": {"nargs": "+", "choices": NAMES, "default": [], "help": "forms of kernels, where a class has them"},
    },
    place=("", "cases"),
    line=line,
    device=opened,
)
main = partial(registry.main, BENCHMARK)

if __name__ == "__main__":
    sys.exit(main())
