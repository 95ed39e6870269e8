"""Add compiled kernels to the pure wheel, and check the tag of the platform.

    python -m build --wheel
    python -m scripts.release.wheel dist/trnqc-*-py3-none-any.whl dist --level x86-64-v4 FOLDER --level x86-64-v3 FOLDER

The folders are those of `scripts.release.kernels`. It needs the packages wheel and auditwheel, and the program strip.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from unittest import mock

from trnqc.errors import InputError
from trnqc.host.files import DIRECTORY_VARIABLE
from trnqc.jit.compiler import ARCHITECTURE_VARIABLE, find_compiler
from trnqc.jit.cpp import cpp_version
from trnqc.jit.shipped import INDEX, LEVELS

LARGEST = 60 * 10**6
# The tag that auditwheel finds: the oldest C library that has the symbols of all libraries.
_TAG = re.compile(r'following platform tag:\s*"(\w+)"|constrains the platform tag to "(\w+)"')


def pack(pure: Path, folders: Mapping[str, Path], out: Path) -> Path:
    """Write the wheel with the compiled files of some levels, and return its path.

    Raises
    ------
    InputError
        If a folder has no libraries, if the wheel is not pure, or if the result is too large.
    """
    if not pure.name.endswith("-any.whl"):
        raise InputError(f"expected a pure wheel, whose name ends in -any.whl; found {pure.name}: run python -m build")
    with tempfile.TemporaryDirectory() as scratch:
        _run("wheel", "unpack", str(pure), "--dest", scratch)
        (root,) = Path(scratch).iterdir()
        for level, folder in folders.items():
            add_level(root / "trnqc" / "prebuilt" / level, level, folder)
        (metadata,) = root.glob("*.dist-info/WHEEL")
        metadata.write_text(metadata.read_text().replace("Root-Is-Purelib: true", "Root-Is-Purelib: false"))
        first = _repacked(root, Path(scratch) / "first", "linux_x86_64")
        tag = platform_tag(_run("auditwheel", "show", str(first)))
        wheel = _repacked(root, out, tag)
    if wheel.stat().st_size > LARGEST:
        raise InputError(
            f"{wheel} has {wheel.stat().st_size / 1e6:.1f} MB, more than {LARGEST / 1e6:.0f} MB: pack less"
        )
    return wheel


def add_level(target: Path, level: str, folder: Path) -> None:
    """Copy the stripped libraries of a cache into a folder of the wheel, and write their index."""
    libraries = sorted(folder.glob("*.so"))
    if not libraries:
        raise InputError(f"{folder} has no compiled libraries: run python -m scripts.release.kernels {level} {folder}")
    target.mkdir(parents=True)
    for library in libraries:
        shutil.copy(library, target)
    subprocess.run(["strip", "--strip-unneeded", *map(str, target.glob("*.so"))], check=True)
    with mock.patch.dict("os.environ", {ARCHITECTURE_VARIABLE: level, DIRECTORY_VARIABLE: str(folder.resolve())}):
        compiler = asdict(find_compiler())
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(target.glob("*.so"))}
    (target / INDEX).write_text(
        json.dumps({"compiler": compiler, "cpp": cpp_version(), "digests": digests}, indent=1) + "\n"
    )


def platform_tag(report: str) -> str:
    """The tag in what ``auditwheel show`` prints. Raises InputError if there is none."""
    found = _TAG.search(" ".join(report.split()))
    if found is None:
        raise InputError(f"auditwheel names no platform tag: {report}")
    return next(filter(None, found.groups()))


def _repacked(root: Path, out: Path, platform: str) -> Path:
    """Pack the folder of a wheel with the tag of a platform, which the metadata names too."""
    (metadata,) = root.glob("*.dist-info/WHEEL")
    metadata.write_text(re.sub(r"(?m)^Tag: .*$", f"Tag: py3-none-{platform}", metadata.read_text()))
    out.mkdir(parents=True, exist_ok=True)
    _run("wheel", "pack", str(root), "--dest-dir", str(out))
    (wheel,) = out.glob(f"{root.name}-py3-none-{platform}.whl")
    return wheel


def _run(module: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputError(f"python -m {module} {' '.join(arguments)} failed: {done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    """Read the arguments, and pack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pure", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--level", nargs=2, action="append", required=True, metavar=("LEVEL", "FOLDER"))
    args = parser.parse_args()
    folders = {level: Path(folder) for level, folder in args.level}
    if unknown := set(folders) - set(LEVELS):
        parser.error(f"a level is one of {', '.join(LEVELS)}; found {', '.join(sorted(unknown))}")
    wheel = pack(args.pure, folders, args.out)
    print(f"{wheel}: {wheel.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
