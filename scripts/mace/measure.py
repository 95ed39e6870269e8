"""Measure one row of `bench_mace` in this process, by the environment that has mace-torch, and print it as JSON.

python -m scripts.mace.measure turns '{"system": 0, "dtype": "float32", "names": ["whole", "e3nn"], "rounds": 5}'
"""

from __future__ import annotations

import copy
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from scripts.mace.systems import SYSTEMS, crystal, model
from scripts.measuring import clocked, in_turns

# Atoms are moved by normal deviates of this size between evaluations, in Angstrom, as in molecular dynamics.
STEP = 0.01


def calculator(name: str, module: Any, dtype: str, threads: int = 1) -> Any:
    """An ASE calculator: e3nn, trnqc.cg (convolutions swapped), whole (trnqc.mace) or symmetrix."""
    import torch

    torch.set_num_threads(threads)
    if name.startswith("whole"):
        from trnqc.mace import Calculator

        return Calculator(module, dtype=dtype, radial="spline" if name != "whole" else "exact", threads=threads)
    if name == "symmetrix":
        from symmetrix import Symmetrix

        path = Path(tempfile.mkdtemp()) / "model.model"
        torch.save(module, path)
        return Symmetrix(str(path), dtype=dtype)
    from mace.calculators import MACECalculator

    result = MACECalculator(models=[copy.deepcopy(module)], device="cpu", default_dtype=dtype)
    if name == "trnqc.cg":
        from trnqc.cg import accelerate

        accelerate(result)
    return result


def properties(calc: Any, atoms: Any) -> tuple[float, np.ndarray]:
    """Energy and forces of a copy of the atoms; the stress is computed too."""
    own = atoms.copy()
    own.calc = calc
    energy, forces = own.get_potential_energy(), own.get_forces()
    own.get_stress()
    return energy, forces


def turns(system: int, dtype: str, names: list[str], rounds: int, threads: int = 1) -> dict[str, Any]:
    """Medians of CPU and wall microseconds for each atom, and errors relative to mace-torch in float64."""
    case = SYSTEMS[system]
    atoms, module, rng = crystal(case.cells), model(dtype, case.changed), np.random.default_rng(0)
    calcs, seconds = first_results(names, module, atoms, dtype, threads)

    def evaluate(name: str) -> None:
        moved = atoms.copy()
        moved.positions += rng.normal(0, STEP, moved.positions.shape)
        properties(calcs[name], moved)

    contestants: dict[str, Callable[[], Any]] = {name: clocked(partial(evaluate, name)) for name in names}
    samples = in_turns(rounds, contestants)
    scale = 1e6 / len(atoms)
    row: dict[str, Any] = {"case": case.name, "dtype": dtype, "atoms": len(atoms), "rounds": rounds, "threads": threads}
    row["cpu microseconds per atom"] = {n: scale * median(cpu for _, cpu in times) for n, times in samples.items()}
    row["wall microseconds per atom"] = {n: scale * median(wall for wall, _ in times) for n, times in samples.items()}
    spent = row["cpu microseconds per atom" if threads == 1 else "wall microseconds per atom"]
    row["speedup"] = {f"{a} over {b}": spent[b] / spent[a] for a in names if "whole" in a for b in names if b != a}
    row["error"] = errors(module, atoms, calcs)
    row["seconds until the first result"] = seconds
    return row


def first_results(
    names: list[str], module: Any, atoms: Any, dtype: str, threads: int = 1
) -> tuple[dict[str, Any], dict[str, dict[str, float]]]:
    """Calculators that have computed a result, and the seconds that this took."""
    calcs, seconds = {}, {}
    for name in names:
        wall, cpu = time.perf_counter(), _cpu()
        calcs[name] = calculator(name, module, dtype, threads)
        properties(calcs[name], atoms)
        seconds[name] = {"wall": time.perf_counter() - wall, "cpu": _cpu() - cpu}
    return calcs, seconds


def ready(system: int, dtype: str, names: list[str]) -> dict[str, Any]:
    """Seconds until the first result."""
    case = SYSTEMS[system]
    _, seconds = first_results(names, model(dtype, case.changed), crystal(case.cells), dtype)
    return {"case": case.name, "dtype": dtype, "seconds until the first result": seconds}


def _cpu() -> float:
    """CPU seconds of this process and of the compilers that it has run."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def errors(module: Any, atoms: Any, calcs: dict[str, Any]) -> dict[str, float]:
    """Largest error of a force, relative to the largest force.

    The reference is the model in float64: mace-torch if it is among the contestants, else ours, because mace-torch
    needs more memory for the larger crystals.
    """
    reference = calculator("e3nn" if "e3nn" in calcs else "whole", copy.deepcopy(module), "float64")
    _, forces = properties(reference, atoms)
    largest = np.abs(forces).max()
    return {name: float(np.abs(properties(calc, atoms)[1] - forces).max() / largest) for name, calc in calcs.items()}


def memory(system: int, dtype: str, name: str) -> dict[str, Any]:
    """The peak memory of this process after evaluations, beyond that after those of a crystal of 5 atoms."""
    case, sizes = SYSTEMS[system], {}
    calc = calculator(name, model(dtype, case.changed), dtype)
    for cells in (1, case.cells):
        for _ in range(2):
            properties(calc, crystal(cells))
        sizes[cells] = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    atoms = 5 * (case.cells**3 - 1)
    return {"case": case.name, "dtype": dtype, "name": name, "bytes per atom": (sizes[case.cells] - sizes[1]) / atoms}


def conservation(system: int, dtype: str, name: str, steps: int = 200) -> dict[str, Any]:
    """Drift and fluctuation of the total energy of molecular dynamics at constant energy, 300 K, 1 fs a step."""
    from ase import units
    from ase.md.velocitydistribution import MaxwellBoltzmannDistribution, Stationary
    from ase.md.verlet import VelocityVerlet

    case = SYSTEMS[system]
    atoms = crystal(case.cells)
    atoms.calc = calculator(name, model(dtype, case.changed), dtype)
    MaxwellBoltzmannDistribution(atoms, temperature_K=300, rng=np.random.default_rng(1))
    Stationary(atoms)
    totals, kinetic = [], []
    run = VelocityVerlet(atoms, timestep=units.fs)
    run.attach(lambda: totals.append(atoms.get_total_energy()))
    run.attach(lambda: kinetic.append(atoms.get_kinetic_energy()))
    run.run(steps)
    slope = np.polyfit(np.arange(len(totals)), totals, 1)[0]
    return {
        "case": case.name,
        "dtype": dtype,
        "name": name,
        "steps": steps,
        "drift in eV per atom and ps": 1000 * slope / len(atoms),
        "standard deviation of the total energy in eV per atom": float(np.std(totals) / len(atoms)),
        "standard deviation of the kinetic energy in eV per atom": float(np.std(kinetic) / len(atoms)),
    }


KINDS: dict[str, Callable[..., dict[str, Any]]] = {
    "turns": turns,
    "ready": ready,
    "memory": memory,
    "conservation": conservation,
}

if __name__ == "__main__":
    print(json.dumps(KINDS[sys.argv[1]](**json.loads(sys.argv[2]))))
