"""A file from which the iterations of a program continue after the job was killed.

    kept = IterationCheckpoint("water.npz", {"molecule": "water", "basis": "cc-pvdz"}, ranks)
    kept.begin(plan, values)                       # an error if the file belongs to other operands or another program
    t = kept.arrays.get("t", start)                # the same bits on all ranks
    for ...:
        t = ...
        kept.keep(t=t, iteration=iteration)        # rank 0 writes

The file is an npz archive of NumPy: the arrays by name, and a description of the problem in JSON. It is replaced when a
new one is complete, so that a kill at any moment leaves the old one or the new one. Its checksums show damage.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from trnqc.contraction.plan import Plan
from trnqc.errors import CheckpointError, InputError, StorageError
from trnqc.host.files import replacing
from trnqc.ranks import ALONE, Ranks

# Version of the format of checkpoints, and the name of the description in the archive.
FORMAT, DESCRIPTION = 1, "problem.json"
# Elements that are compared by one sum, with these weights.
CHUNK = 2**16
# Largest difference of the sums, relative to the norm, of operands that count as the same. Integrals that are computed
# again differ by rounding; orbitals with another sign or of another converged SCF differ by far more.
SAME = 1e-9
# The same relative to the largest norm of all operands, for operands that are nothing but rounding errors of larger
# numbers, as a Fock matrix between occupied and virtual orbitals.
ROUNDING = 1e-12


class IterationCheckpoint:
    """Arrays of iterations in a file, with what they belong to.

    Parameters
    ----------
    path : str or Path
        The file; its directory must exist. Without a file the iterations begin.
    problem : mapping
        What is computed, by name, in values of JSON: a checkpoint of other values is refused.
    ranks : Ranks
        The ranks of the job, all of which make the same calls. Their number may differ from that of the killed job.
    every : float
        Seconds between two writes; 0 writes in every call of `keep`.

    Attributes
    ----------
    arrays : dict
        The arrays by name that the file has, with the same bits on all ranks; empty without a file.

    Raises
    ------
    CheckpointError
        If the file is damaged, is no checkpoint, or belongs to another problem; the message says which.
    StorageError
        If the directory does not exist.
    """

    def __init__(self, path: str | Path, problem: Mapping[str, Any], ranks: Ranks = ALONE, every: float = 0.0) -> None:
        self.path, self.ranks, self.every = Path(path), ranks, every
        self._problem: dict[str, Any] = json.loads(json.dumps(dict(problem)))
        self._written = -math.inf
        self._found, self.arrays = ranks.at_first(self._opened)
        self._kept = dict(self.arrays) if ranks.rank == 0 else {}

    def begin(self, plan: Plan, operands: Mapping[str, Any]) -> None:
        """Compare the program and its operands with those of the file; call it before the first iteration.

        Parameters
        ----------
        plan : Plan
            The program: its statements, shapes, symmetry and outputs have to be the same. Its memory limit may differ.
        operands : mapping
            The operands by name that do not change with the iterations. Arrays are compared by their norm and a sum
            of all elements with fixed weights, to a relative 1e-9, or 1e-12 of the largest norm of all operands.
            Functions are not compared.

        Raises
        ------
        CheckpointError
            If they differ; the message names the difference.
        """
        self.ranks.at_first(lambda: self._compare(_described(plan, operands)))

    def keep(self, **arrays: Any) -> None:
        """Write arrays or numbers by name, if `every` seconds have passed since the last write.

        Arrays of earlier writes that are not named here stay in the file. Arrays must not be changed in place later.

        Raises
        ------
        StorageError
            If the file cannot be written, on rank 0. The old one is as it was.
        """
        if self.ranks.rank or time.monotonic() - self._written < self.every:
            return
        named = {name: np.asarray(array) for name, array in arrays.items()}
        if wrong := [name for name, x in named.items() if x.dtype.kind not in "biufc" or name in ("file", DESCRIPTION)]:
            raise InputError(
                f"a checkpoint keeps arrays of numbers, of any name but file and {DESCRIPTION}; found {wrong[0]} of "
                f"type {named[wrong[0]].dtype}"
            )
        self._kept |= named
        words = np.array(json.dumps({"format": FORMAT, "arrays of the file": sorted(self._kept), **self._problem}))
        with replacing(self.path) as aside, aside.open("xb") as file:
            np.savez(file, **{DESCRIPTION: words}, **self._kept)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        self._written = time.monotonic()

    def _opened(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the description and the arrays of the file."""
        if not self.path.parent.is_dir():
            raise StorageError(f"{self.path}: there is no directory {self.path.parent}; make it, or name another file")
        if not self.path.exists():
            return {}, {}
        found, arrays = _read(self.path)
        self._refuse({name: found.get(name) for name in self._problem}, self._problem)
        return found, arrays

    def _compare(self, described: dict[str, Any]) -> None:
        """Compare with the description of the file, and take it over."""
        numbers = described.pop("operands")
        if "operands" in self._found:
            self._refuse({name: self._found.get(name) for name in described}, described)
            theirs = self._found["operands"]
            rounding = ROUNDING * max((norm for norm, *_ in numbers.values()), default=0.0)
            for name in sorted({*theirs, *numbers}):
                if not _close(theirs.get(name), numbers.get(name), rounding):
                    raise CheckpointError(
                        f"{self.path} is the checkpoint of another problem: its operand {name} has other elements, "
                        f"with norm and weighted sum {theirs.get(name)}, here {numbers.get(name)}: take the same input "
                        "and orbitals, name another file, or remove this one"
                    )
        self._problem |= {**described, "operands": numbers}

    def _refuse(self, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
        """Raise CheckpointError for the first difference."""
        for name, value in ours.items():
            if theirs[name] != value:
                raise CheckpointError(
                    f"{self.path} is the checkpoint of another problem: {name} is {_difference(theirs[name], value)}: "
                    "name another file, or remove this one"
                )


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the description and the arrays of a file."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        found = json.loads(str(arrays.pop(DESCRIPTION)))
        number, names = found["format"], found.get("arrays of the file")
    except Exception as error:  # NumPy, zipfile and zlib have many kinds of errors for damaged bytes.
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        raise CheckpointError(
            f"{path}: damaged, or no checkpoint ({why}): remove it and start the job again, or name another file"
        ) from None
    if number != FORMAT:
        raise CheckpointError(
            f"{path}: a checkpoint of format {number}; this version of trnqc reads format {FORMAT}: name another file, "
            "or remove this one"
        )
    # The list of an archive's members has no checksum.
    if sorted(arrays) != names:
        raise CheckpointError(
            f"{path}: damaged (arrays {', '.join(sorted(arrays)) or 'none'} in place of {names}): remove it and start "
            "the job again, or name another file"
        )
    return found, arrays


def _described(plan: Plan, operands: Mapping[str, Any]) -> dict[str, Any]:
    """Return what iterations of a program depend on, in values of JSON."""
    shapes = ", ".join(f"{name} {list(shape)}" for name, shape in sorted(plan.shapes.items()))
    arrays = {name: np.asarray(x) for name, x in operands.items() if not callable(x)}
    return {
        "program": plan.title,
        "shapes": shapes,
        "symmetry": str(plan.exchanges),
        "outputs": ", ".join(plan.outputs),
        "operands": {name: _numbers(array) for name, array in arrays.items()},
    }


def _numbers(array: np.ndarray) -> list[float]:
    """Return the norm and a weighted sum of all elements, as real numbers."""
    flat = array.ravel()
    weights = np.random.Generator(np.random.PCG64(0)).standard_normal(min(CHUNK, flat.size))
    square, total = 0.0, 0.0 + 0.0j
    for number, start in enumerate(range(0, flat.size, CHUNK)):
        part = flat[start : start + CHUNK]
        square += float(np.vdot(part, part).real)
        # Chunks that change places change the sum.
        total += complex(np.dot(part, weights[: part.size])) * math.cos(number)
    return [math.sqrt(square), total.real, total.imag]


def _close(one: list[float] | None, two: list[float] | None, rounding: float) -> bool:
    if one is None or two is None:
        return one is two
    return max(abs(a - b) for a, b in zip(one, two)) <= max(SAME * max(one[0], two[0]), rounding)


def _difference(theirs: Any, ours: Any) -> str:
    """Return both values, or the first line in which two texts differ."""
    one, two = str(theirs).splitlines(), str(ours).splitlines()
    if max(len(one), len(two)) < 2:
        return f"{theirs!r} there and {ours!r} here"
    for number, (a, b) in enumerate(zip_longest(one, two), start=1):
        if a != b:
            return f"in line {number} {a!r} there and {b!r} here"
    return "different there"
