"""J and K of a small case as recorded launches, which run where PySCF is missing.

    python -m scripts.device.first_run.stored [--out FILE]        record, where PySCF is installed; needs no GPU

The file has every array that is copied to a device and every launch of J and K of two atoms with s and d shells. The
results to compare with are those of a simulated device, checked against PySCF when they are recorded.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from scripts.device.first_run import checks
from scripts.device.first_run.inventory import STORED_FILE
from scripts.eri.counting_device import CountingDevice
from trnqc.eri.classes import QuartetClass
from trnqc.eri.cuda import screen
from trnqc.eri.cuda.batch import work_recipe
from trnqc.eri.cuda.tiers import candidates
from trnqc.eri.jk.batch import Batch
from trnqc.jit import Recipe
from trnqc.jit.device import Argument, BuiltKernel, Device, DeviceArray, ExternalStream

RESULTS = ("vj", "vk")


class Recorder(CountingDevice):
    """A device that keeps what is copied to it, and the launches, instead of computing anything."""

    def __init__(self) -> None:
        super().__init__(multiprocessors=1)
        self.arrays: list[DeviceArray] = []
        self.calls: list[dict[str, Any]] = []

    def build(self, recipe: Recipe, lanes: int, *, accumulate: str = "fence", min_blocks: int = 0) -> BuiltKernel:
        return BuiltKernel(recipe.signatures[0], lanes, recipe.name)

    def zeros(self, *shape: int, dtype: Any = np.float64) -> DeviceArray:
        self.arrays.append(super().zeros(*shape, dtype=dtype))
        return self.arrays[-1]

    def write(self, memory: DeviceArray, array: np.ndarray) -> None:
        memory.handle = array.copy()

    def launch(
        self, built: BuiltKernel, groups: int, arguments: Mapping[str, Argument], stream: int | ExternalStream = 0
    ) -> None:
        places = {id(memory): n for n, memory in enumerate(self.arrays)}
        named = {p.name: arguments[p.name] for p in built.parameters}
        arrays = {name: places[id(a)] for name, a in named.items() if isinstance(a, DeviceArray)}
        numbers = {name: int(a) for name, a in named.items() if not isinstance(a, DeviceArray)}
        self.calls.append({"program": built.handle, "groups": groups, "arrays": arrays, "numbers": numbers})


def record(momenta: tuple[int, ...], out: Path = STORED_FILE) -> None:
    """Record J and K of two atoms with shells of these angular momenta."""
    from trnqc.eri.cuda.builder import CudaJKBuilder
    from trnqc.jit.simulated_device import SimulatedDevice

    class Kept(CudaJKBuilder):
        """Keeps J by pairs and K by blocks, as devices add them up."""

        def _summed(self, *arguments: Any) -> Any:
            self.sums = super()._summed(*arguments)
            return self.sums

    checks.integrals(momenta, simulate=True)
    mol = checks.atoms(momenta)
    dm = np.eye(mol.nao_nr())
    kept = Kept(mol, devices=[SimulatedDevice(lanes=4, checked=False)])
    kept.get_jk(dm)
    recorder = Recorder()
    CudaJKBuilder(mol, devices=[recorder]).get_jk(dm)
    facts = {"momenta": momenta, "calls": recorder.calls}
    facts["arrays"] = [(memory.shape, memory.dtype.str) for memory in recorder.arrays]
    data: dict[str, Any] = {f"array {n}": m.handle for n, m in enumerate(recorder.arrays) if m.handle is not None}
    data |= dict(zip(RESULTS, kept.sums))
    np.savez_compressed(out, facts=np.array(json.dumps(facts)), **data)


def replay(device: Device, file: Path = STORED_FILE) -> dict[str, float]:
    """Run the recorded launches on a device. Returns the errors of J and K, in Hartree."""
    with np.load(file) as stored:
        facts = json.loads(str(stored["facts"]))
        memories = [
            device.upload(stored[f"array {n}"])
            if f"array {n}" in stored
            else device.zeros(*shape, dtype=np.dtype(kind))
            for n, (shape, kind) in enumerate(facts["arrays"])
        ]
        wanted = {name: stored[name] for name in RESULTS}
    built: dict[str, BuiltKernel] = {}
    for call in facts["calls"]:
        name = call["program"]
        built[name] = built.get(name) or _built(device, name)
        arrays = {key: memories[n] for key, n in call["arrays"].items()}
        device.launch(built[name], call["groups"], {**call["numbers"], **arrays})
    places = next(c["arrays"] for c in facts["calls"] if "vj" in c["arrays"])
    results = {name: device.download(memories[places[name]]) for name in RESULTS}
    device.release(*memories)
    return {name: float(abs(results[name] - wanted[name]).max()) for name in RESULTS}


def _built(device: Device, name: str) -> BuiltKernel:
    """Build a program by its name, such as work_jk_eri_2000_sph_registers, with the lanes of the recording."""
    digits = next(word for word in name.split("_") if word.isdigit())
    la, lb, lc, ld = map(int, digits)
    batch = Batch(QuartetClass(la, lb, lc, ld))
    if name.startswith("screen_"):
        return device.build(screen.recipe(batch, screen.LANES), screen.LANES)
    tier = next(tier for tier in candidates(batch.cls) if tier.name == name.rpartition("_")[2])
    return device.build(work_recipe(batch, tier), tier.lanes, accumulate=tier.accumulate, min_blocks=tier.min_blocks)


def check(simulate: bool) -> dict[str, float]:
    """The step of the first run."""
    return checks.gated(replay(checks.device(simulate, lanes=128)), checks.GATE_JK)


def main() -> None:
    """Record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=STORED_FILE)
    record((0, 2), parser.parse_args().out)


if __name__ == "__main__":
    main()
