"""Compiled files that a wheel brings along, for CPUs of one level of their instruction set.

A wheel may contain the folder trnqc/prebuilt with a folder for each level, such as x86-64-v3. Such a folder contains
shared libraries, named as entries of the cache are, and the file kernels.json, which names the compilers and the digest
of each library. scripts/release writes it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import warnings
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trnqc.jit import probed

if TYPE_CHECKING:
    from trnqc.jit.compiler import Compiler

FOLDER = Path(__file__).parents[1] / "prebuilt"
INDEX = "kernels.json"
# The levels from the best to the least, and the features of each in the words of /proc/cpuinfo (System V ABI, AMD64
# supplement, section 3.1.1; abm stands for lzcnt).
_V3 = frozenset(["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"])
LEVELS = {
    "x86-64-v4": _V3 | frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]),
    "x86-64-v3": _V3,
}


@dataclass(frozen=True)
class Shipment:
    """The compiled files of one level.

    Attributes
    ----------
    directory : Path
        The folder of the level.
    compiler : dict
        The fields of the `trnqc.jit.Compiler` that compiled them.
    digests : dict
        The SHA-256 digest of each file, by its name.
    cpp : str
        What the compiler of the files in C++ says of itself.
    """

    directory: Path
    compiler: dict[str, Any]
    digests: dict[str, str]
    cpp: str = ""
    _checked: dict[str, bool] = field(default_factory=dict, compare=False, repr=False)

    @property
    def level(self) -> str:
        """The name of the level."""
        return self.directory.name

    def file(self, name: str) -> Path | None:
        """Return the path of a file, or None if there is none of this name or if its content was changed.

        A changed file is never loaded, and a warning names it.
        """
        if name not in self.digests:
            return None
        path = self.directory / name
        if name not in self._checked:
            self._checked[name] = self._sound(path)
        return path if self._checked[name] else None

    def _sound(self, path: Path) -> bool:
        try:
            found = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            found = str(error)
        if found != self.digests[path.name]:
            warnings.warn(
                f"{path} is not used: its digest in {INDEX} is {self.digests[path.name]}, found {found}. Install the "
                "wheel again (pip install --force-reinstall trnqc)",
                RuntimeWarning,
                stacklevel=4,
            )
            return False
        return True


def levels_of(features: Collection[str]) -> tuple[str, ...]:
    """The levels that a CPU with these features of /proc/cpuinfo can run, the best first."""
    return tuple(level for level, needed in LEVELS.items() if needed <= set(features))


@functools.cache
def shipment(folder: Path = FOLDER) -> Shipment | None:
    """Return the compiled files for the best level of this CPU, or None if there are none for it."""
    if not folder.is_dir():
        return None
    for level in levels_of(_features()):
        index = folder / level / INDEX
        if index.is_file():
            content = json.loads(index.read_text())
            return Shipment(index.parent, content["compiler"], content["digests"], content["cpp"])
    return None


def _features() -> set[str]:
    lines = (line.partition(":") for line in probed.cpu_features().splitlines())
    return next((set(value.split()) for key, _, value in lines if key.strip() == "flags"), set())


# By the macros that compilers predefine for them. trnqc/cg/cpp/cpu.h has a test for each.
FEATURES = {
    "__AVX__": "avx",
    "__AVX2__": "avx2",
    "__FMA__": "fma",
    "__BMI2__": "bmi2",
    "__AVX512F__": "avx512f",
    "__AVX512BW__": "avx512bw",
    "__AVX512DQ__": "avx512dq",
    "__AVX512VL__": "avx512vl",
}


def cpu_features(compiler: Compiler) -> list[str]:
    """The names of the features that the code of a compiler may use."""
    macros = {line.split()[1] for line in compiler.target.splitlines() if len(line.split()) > 1}
    return [feature for macro, feature in FEATURES.items() if macro in macros]
