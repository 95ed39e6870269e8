"""The compiled programs of the atoms of a model, and the arrays that they read and write.

plan -> programs (forward.py, reverse.py) and contractions (trnqc.cg) -> compiled functions of blocks of atoms
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from trnqc import jit
from trnqc.cg.cpu.contraction import recipe
from trnqc.host.arrays import empty
from trnqc.host.threads import in_parallel
from trnqc.jit import NUMPY, CompiledFunction
from trnqc.mace.nodes import forward, reverse
from trnqc.mace.nodes.plan import Plan
from trnqc.mace.nodes.stage import Program

# Largest number of atoms of a block. Matrix products multiply the atoms of a block with a matrix in the cache.
ATOMS = 24


@dataclass(frozen=True)
class Blocks:
    """Atoms, sorted by element, in blocks of one element.

    Parameters
    ----------
    elements : numpy.ndarray
        The number of the element of each atom in ascending order, int64 [atoms].
    """

    elements: np.ndarray

    @property
    def table(self) -> np.ndarray:
        """Element, first atom and number of atoms of each block, int64 [blocks, 3]."""
        rows = []
        for element in np.unique(self.elements):
            first, end = np.searchsorted(self.elements, [element, element + 1])
            parts = -(-(end - first) // ATOMS)
            edges = [first + (end - first) * n // parts for n in range(parts + 1)]
            rows += [(element, a, b - a) for a, b in pairwise(edges)]
        return np.array(rows, np.int64).reshape(-1, 3)


class NodeKernels:
    """The programs of a plan, compiled or loaded from the cache.

    Parameters
    ----------
    plan : Plan
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.programs = {program.function.name: program for program in _programs(plan)}
        library = jit.library(
            jit.Recipe.of(*(p.function for p in self.programs.values()), name="mace_nodes"), plan.tile.lanes
        )
        self.functions: dict[str, CompiledFunction] = {name: getattr(library, name) for name in self.programs}
        for t, layer in enumerate(plan.layers):
            for kind in ("value", "gradient"):
                of_kind = recipe(layer.contraction, kind, 0, plan.dtype, plan.tile.lanes)
                self.functions[f"contraction_{kind}{t}"] = getattr(jit.library(of_kind), of_kind.name)

    @property
    def widths(self) -> dict[str, int]:
        """Numbers of vectors of the rows of all arrays by name; 0 for arrays of numbers."""
        widths: dict[str, int] = {}
        for program in self.programs.values():
            widths |= program.widths
        return widths | {f"x{t}": layer.sent.width for t, layer in enumerate(self.plan.layers)}

    def arrays(self, atoms: int) -> dict[str, np.ndarray]:
        """New arrays for a number of atoms, by name."""
        lanes, dtype, widths = self.plan.tile.lanes, NUMPY[self.plan.dtype], self.widths
        arrays = {name: empty((atoms, width, lanes), dtype) for name, width in widths.items() if width}
        numbers = {name: np.zeros(atoms, dtype) for name, width in widths.items() if not width}
        return arrays | numbers | {"energies": np.zeros(atoms)}


def _programs(plan: Plan) -> list[Program]:
    layers = range(len(plan.layers))
    return [make(plan, t) for t in layers for make in PROGRAMS]


PROGRAMS: tuple[Callable[[Plan, int], Program], ...] = (
    forward.messages,
    forward.features,
    reverse.features,
    reverse.messages,
)


class NodeRun:
    """The programs bound to the arrays of one set of atoms.

    Parameters
    ----------
    kernels : NodeKernels
    elements : numpy.ndarray
        As for `Blocks`.
    threads : int
        Number of threads.
    """

    def __init__(self, kernels: NodeKernels, elements: np.ndarray, threads: int) -> None:
        self.kernels, self.threads = kernels, threads
        plan = kernels.plan
        self.blocks = Blocks(elements).table
        self.arrays = kernels.arrays(len(elements))
        if len(elements):
            self.arrays["x0"][...] = plan.sent[elements]
        self._elements = elements
        self._calls: dict[str, CompiledFunction] = {}
        for name, program in kernels.programs.items():
            named = {key: self.arrays[key] for key in program.widths}
            self._calls[name] = kernels.functions[name].bind(blocks=self.blocks, parameters=plan.parameters, **named)
        starts = np.append(self.blocks[:, 1], len(elements)).astype(np.int64)
        of_blocks, nodes = np.ascontiguousarray(self.blocks[:, 0]), np.arange(len(elements), dtype=np.int64)
        for t, layer in enumerate(plan.layers):
            common = (layer.messages.vectors[0], starts, of_blocks, nodes, plan.coefficients[t], self.arrays[f"m{t}"])
            self._calls[f"contraction_value{t}"] = kernels.functions[f"contraction_value{t}"].bind(
                *common, self.arrays[f"b{t}"]
            )
            self._calls[f"contraction_gradient{t}"] = kernels.functions[f"contraction_gradient{t}"].bind(
                *common, self.arrays[f"gb{t}"], self.arrays[f"gm{t}"]
            )

    def features(self, name: str, channels: int) -> np.ndarray:
        """An array as [atoms, components, channels], for slots of equal multiplicities."""
        array = self.arrays[name]
        return array.reshape(len(array), array[0].size // channels if len(array) else 0, channels)

    def forward(self, t: int) -> None:
        """Compute the features of layer t and what atoms send next, from the sums over edges in ``a``."""
        for name in ("messages", "contraction_value", "features"):
            self._run(f"{name}{t}")

    def reverse(self, t: int) -> None:
        """Compute the gradient of the sums over edges of layer t, in ``ga``."""
        for name in ("features_reverse", "contraction_gradient", "messages_reverse"):
            self._run(f"{name}{t}")

    def begin(self) -> None:
        """Set the energies to their constants."""
        self.arrays["energies"][...] = self.kernels.plan.atomic_energies[self._elements]

    def _run(self, name: str) -> None:
        call, count = self._calls[name], len(self.blocks)
        parts = min(count, 4 * self.threads if self.threads > 1 else 1)
        in_parallel(lambda i: call(count * i // parts, count * (i + 1) // parts), parts, self.threads)
