"""Wheels for another machine, downloaded by pip, and what the first run lacks of those that cannot be had.

The machine is expected to have NumPy, PyTorch, CuPy, JAX and the CUDA toolkit, so wheels are taken without what they
depend on: everything that is needed besides is listed here.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from scripts import ROOT
from scripts.device.first_run.table import STEPS

# A wheel, by the package of `first_run.inventory.PACKAGES` that does not work without it. Without those of "" nothing
# works.
WHEELS = {
    "rich": "",
    "markdown-it-py": "",
    "mdurl": "",
    "Pygments": "",
    "threadpoolctl": "",
    "z3-solver": "",
    "scipy": "",
    "h5py": "",
    "ml_dtypes": "",
    "pyscf": "pyscf",
    "cuda-core": "cuda-core",
    "cuda-bindings": "cuda-core",
    "cuda-pathfinder": "cuda-core",
    "nvidia-cuda-nvrtc": "cuda-core",
    "nvmath-python": "nvmath-python",
    "gpu4pyscf-cuda13x": "gpu4pyscf",
    "gpu4pyscf-libxc-cuda13x": "gpu4pyscf",
    "cutensor-cu13": "gpu4pyscf",
    "pyscf-dispersion": "gpu4pyscf",
    "geometric": "gpu4pyscf",
    "e3nn": "e3nn",
    "opt_einsum_fx": "e3nn",
    "opt_einsum": "e3nn",
    "sympy": "e3nn",
    "mpmath": "e3nn",
    "cuequivariance": "cuequivariance",
    "cuequivariance-torch": "cuequivariance",
    "cuequivariance-ops-cu13": "cuequivariance",
    "cuequivariance-ops-torch-cu13": "cuequivariance",
    "openequivariance": "openequivariance",
}
# glibc 2.28 and all older ones for which wheels are built, and their former names.
PLATFORMS = tuple(
    f"{name}_x86_64" for name in (*(f"manylinux_2_{n}" for n in range(28, 4, -1)), "manylinux2014", "manylinux1")
)

Fetch = Callable[[str, str, Path], str]


def requirement(name: str, versions: dict[str, str]) -> str:
    """A requirement, with the version that is wanted if it is known."""
    return f"{name}=={versions[name]}" if name in versions else name


def download(name: str, python: str, folder: Path) -> str:
    """Download the wheel of one requirement without its dependencies. Returns the reason if it cannot be had.

    Where there is only source of Python alone, the wheel is made here.
    """
    command = ["download", "--only-binary=:all:", "--dest", str(folder), "--implementation", "cp"]
    command += ["--python-version", python, *(word for platform in PLATFORMS for word in ("--platform", platform))]
    reason = _pip(*command, name)
    return reason if reason and not _made(name, folder) else ""


def _made(name: str, folder: Path) -> bool:
    """Make a wheel from source; one with compiled code would be for this machine, and is left."""
    with tempfile.TemporaryDirectory(prefix="trnqc-wheel-") as scratch:
        _pip("wheel", "--wheel-dir", scratch, name)
        made = [path for path in Path(scratch).glob("*.whl") if path.name.endswith("-none-any.whl")]
        for path in made:
            shutil.copy(path, folder)
    return bool(made)


def _pip(action: str, *arguments: str) -> str:
    """Run pip without dependencies, with the versions of constraints.txt. Returns its last error, or nothing."""
    command = [sys.executable, "-m", "pip", action, "--no-deps", "--quiet", "-c", str(ROOT / "constraints.txt")]
    process = subprocess.run([*command, *arguments], capture_output=True, text=True)
    if process.returncode == 0:
        return ""
    errors = [line for line in process.stderr.splitlines() if line.startswith("ERROR")]
    return (errors or process.stderr.strip().splitlines() or [f"pip ended with status {process.returncode}"])[-1]


def gather(
    names: Sequence[str], python: str, folder: Path, versions: dict[str, str], fetch: Fetch = download
) -> dict[str, str]:
    """Download wheels. Returns those that cannot be had, with the reason and what the first run lacks without them."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = {}
    for name in names:
        reason = fetch(requirement(name, versions), python, folder)
        if reason:
            missing[name] = f"{reason}: {consequence(name)}"
    return missing


def consequence(wheel: str) -> str:
    """What the first run lacks without a wheel, unless the machine has the package."""
    package = WHEELS.get(wheel, wheel)
    skipped = [step.name for step in STEPS if package in step.needs]
    beside = [step.name for step in STEPS if package in step.beside]
    if not package:
        return "unless the machine has it, nothing runs"
    words = [f"skipped are {', '.join(skipped)}"] * bool(skipped) + [f"no comparison in {', '.join(beside)}"] * bool(
        beside
    )
    return f"unless the machine has it, {'; '.join(words) or 'no step is concerned'}"
