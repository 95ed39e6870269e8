"""What a GPU machine without a network lacks for the first run, in parts of limited size.

    python -m scripts.device.bundle --parts 60M --out FOLDER [--python 3.12] [--arch sm_80 sm_90]
    bash FOLDER/setup.sh TARGET                                     there, with the same version of Python

FOLDER gets the parts of a tar file with wheels, the source tree of the last commit and compiled kernels, their digests
and setup.sh. Kernels need cuda-core and NVRTC here (pip install 'trnqc[cuda]'), but no GPU.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts import ROOT
from scripts.device.bundle.packing import pack, size_of
from scripts.device.bundle.wheels import WHEELS, Fetch, download, gather
from scripts.device.first_run.inventory import STORED_FILE
from scripts.measuring import heading, write_json
from trnqc.host.files import DIRECTORY_VARIABLE


def main(argv: Sequence[str] | None = None, fetch: Fetch = download) -> int:
    """Make a bundle. `fetch` replaces pip for tests."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--parts", type=size_of, default=size_of("60M"), help="the largest part (default: 60M)")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--python", default="3.12", help="the machine's version of Python (default: %(default)s)")
    parser.add_argument("--arch", nargs="+", default=["sm_80", "sm_90"], help="the GPUs (default: sm_80 sm_90)")
    parser.add_argument("--wheels", nargs="*", default=list(WHEELS), help="instead of those of wheels.py")
    parser.add_argument(
        "--kernels",
        choices=("all", "checks", "none"),
        default="all",
        help="compile for which steps, and store launches",
    )
    asked = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="trnqc-bundle-") as scratch:
        folder = Path(scratch) / "bundle"
        facts = contents(folder, asked, fetch)
        parts = pack(folder, asked.out, asked.parts, asked.python)
    size = sum(path.stat().st_size for path in parts)
    write_json(facts | {"parts": [path.name for path in parts], "bytes": size}, asked.out / "bundle.json")
    for line in facts["missing"]:
        print(f"not in this bundle: {line}")
    print(
        f"{len(parts)} parts, {size / 1e6:.0f} MB, {facts['cubins']} cubins, {len(facts['wheels'])} wheels for Python "
        f"{asked.python}; there: bash setup.sh FOLDER"
    )
    return 0


def contents(folder: Path, asked: argparse.Namespace, fetch: Fetch) -> dict[str, Any]:
    """Write what goes into the bundle to a folder. Returns facts about it."""
    source_tree(folder / "trnqc")
    versions: dict[str, str] = {}
    missing: list[str] = []
    if asked.kernels != "none":
        missing += stored_launches(folder / "trnqc")
        built = kernels(folder / "cache", asked.arch, asked.kernels)
        missing += built["missing"]
        # The cubins are found by this version of NVRTC alone.
        versions |= {"nvidia-cuda-nvrtc": built["package"]} if built["package"] else {}
    lacking = gather(asked.wheels, asked.python, folder / "wheels", versions, fetch)
    missing += [f"{name}: {reason}" for name, reason in lacking.items()]
    (folder / "missing.txt").write_text("".join(f"{line}\n" for line in missing))
    wheels = sorted(path.name for path in (folder / "wheels").glob("*.whl"))
    cubins = len(list((folder / "cache").glob("*.cubin")))
    commit = _git("rev-parse", "HEAD").decode().strip()
    facts = heading() | {"commit": commit, "python": asked.python, "archs": asked.arch}
    return facts | {"wheels": wheels, "cubins": cubins, "missing": missing}


def source_tree(folder: Path) -> None:
    """Write the files of the last commit."""
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(_git("archive", "--format=tar", "HEAD"))) as tar:
        tar.extractall(folder, filter="data")


def stored_launches(tree: Path) -> list[str]:
    """Record the launches of J and K that a machine without PySCF can check. Returns the reason if that fails."""
    out = tree / STORED_FILE.relative_to(ROOT)
    command = [sys.executable, "-m", "scripts.device.first_run.stored", "--out", str(out)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if process.returncode == 0:
        return []
    last = (process.stderr.strip().splitlines() or ["no output"])[-1]
    return [f"stored launches, so that `eri d, stored` is skipped: {last}"]


def kernels(cache: Path, archs: Sequence[str], only: str) -> dict[str, Any]:
    """Compile kernels into a cache of their own, with nothing of this machine in it."""
    with tempfile.TemporaryDirectory(prefix="trnqc-kernels-") as scratch:
        command = [sys.executable, "-m", "scripts.device.bundle.kernels", *archs, "--only", only]
        environment = os.environ | {DIRECTORY_VARIABLE: scratch}
        process = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        lines = process.stdout.strip().splitlines()
        if process.returncode != 0 or not lines:
            last = (process.stderr.strip().splitlines() or ["no output"])[-1]
            return {"missing": [f"compiled kernels, which the GPU's machine compiles then: {last}"], "package": ""}
        cache.mkdir(parents=True, mode=0o700)
        for cubin in Path(scratch).glob("*.cubin"):
            for path in (cubin, cubin.with_suffix(".sha256")):
                shutil.copy(path, cache)
    facts: dict[str, Any] = json.loads(lines[-1])
    failed = [f"the kernels {name}: {error.splitlines()[0]}" for name, error in facts["failed"].items()]
    return facts | {"missing": failed}


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout


if __name__ == "__main__":
    sys.exit(main())
