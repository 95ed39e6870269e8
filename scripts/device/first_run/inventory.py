"""What a machine has: GPUs, driver, versions of packages and tools, and what a step lacks of them."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# The distributions of what steps need, by the name that is printed. Several builds of one package exist.
PACKAGES = {
    "numpy": r"numpy",
    "torch": r"torch",
    "cuda-core": r"cuda-core",
    "cuda-bindings": r"cuda-bindings",
    "nvidia-cuda-nvrtc": r"nvidia-cuda-nvrtc(-cu\d+)?",
    "nvmath-python": r"nvmath-python",
    "cupy": r"cupy(-cuda\d+x)?",
    "gpu4pyscf": r"gpu4pyscf(-cuda\d+x)?",
    "cuequivariance": r"cuequivariance-torch",
    "openequivariance": r"openequivariance",
    "e3nn": r"e3nn",
    "pyscf": r"pyscf",
    "scipy": r"scipy",
    "h5py": r"h5py",
    "ml_dtypes": r"ml[-_]dtypes",
}
# The launches that `stored` records, which a bundle brings along; a need by the name STORED.
# A build of PyTorch with CUDA, a need of what times tensors.
TORCH_CUDA = "torch with CUDA"
STORED, STORED_FILE = "stored launches", Path(__file__).with_name("stored.npz")
TOOLS = ("nvcc", "compute-sanitizer", "gcc", "g++")
# Seconds that a program may take to tell its version or to find the GPUs.
PATIENCE = 60
# Opens every GPU as our devices do, in a process of its own, which a driver may end.
_OPEN = """
import json
from trnqc.errors import TrnqcError
from trnqc.jit.device import cuda_devices
try:
    print(json.dumps({"gpus": [f"{d.name} ({d.arch})" for d in cuda_devices()], "reason": ""}))
except TrnqcError as error:
    print(json.dumps({"gpus": [], "reason": str(error)}))
"""


def inventory() -> dict[str, Any]:
    """Return what is there, with a version of None for what is not."""
    there: dict[str, Any] = {"python": platform.python_version(), "system": platform.platform()}
    there |= {"driver": _driver(), "packages": packages(), "tools": {name: _tool(name) for name in TOOLS}}
    return there | opened()


def packages() -> dict[str, str | None]:
    """Return the versions of the installed packages of PACKAGES."""
    found = {(d.metadata["Name"] or "").lower(): d.version for d in importlib.metadata.distributions()}
    versions: dict[str, str | None] = {}
    for name, pattern in PACKAGES.items():
        versions[name] = next((v for other, v in found.items() if re.fullmatch(pattern, other)), None)
    return versions


def opened() -> dict[str, Any]:
    """Return the GPUs that can be used, or the reason why none can."""
    try:
        process = subprocess.run([sys.executable, "-c", _OPEN], capture_output=True, text=True, timeout=PATIENCE)
        answer: dict[str, Any] = json.loads(process.stdout)
        return answer
    except subprocess.TimeoutExpired:
        return {"gpus": [], "reason": f"the driver did not answer within {PATIENCE} s"}
    except json.JSONDecodeError:
        last = (process.stderr.strip().splitlines() or [f"exit status {process.returncode}"])[-1]
        return {"gpus": [], "reason": f"opening the GPUs failed: {last}"}


def lacking(needs: Sequence[str], there: Mapping[str, Any], simulate: bool) -> list[str]:
    """Return why a step cannot run: one sentence for each thing of `needs` that is missing."""
    if simulate:
        if "compute-sanitizer" in needs:
            return ["simulated devices check accesses to memory themselves"]
        needs = [need for need in needs if need not in ("gpu", "cuda-core", "nvmath-python", TORCH_CUDA)]
    reasons = []
    for need in needs:
        if need == "gpu":
            reasons += [f"no GPU: {there['reason']}"] if not there["gpus"] else []
        elif need == TORCH_CUDA:
            version = there["packages"]["torch"]
            reasons += (
                [] if version and not version.endswith("+cpu") else [f"torch with CUDA is not installed ({version})"]
            )
        elif need == STORED:
            how = "python -m scripts.device.first_run.stored"
            reasons += (
                [] if STORED_FILE.exists() else [f"there are no stored launches ({how}, where PySCF is installed)"]
            )
        elif not (there["tools"] if need in TOOLS else there["packages"])[need]:
            reasons.append(f"{need} is not installed")
    return reasons


def _driver() -> list[str]:
    """GPUs and the version of the driver, as nvidia-smi tells them; empty where it is not installed."""
    return _lines("nvidia-smi", "--query-gpu=name,driver_version,memory.total,compute_cap", "--format=csv,noheader")


def _tool(name: str) -> str | None:
    if not shutil.which(name):
        return None
    lines = _lines(name, "--version")
    return next((line for line in lines if re.search(r"\d\.\d", line)), "installed, version unknown")


def _lines(*command: str) -> list[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE).stdout.strip().splitlines()
    except (OSError, subprocess.TimeoutExpired):
        return []
