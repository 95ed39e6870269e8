"""The compiled programs of the atoms of a model, and the arrays that they read and write.

plan -> programs (forward.py, reverse.py) and contractions (trnqc.cg) -> compiled functions of blocks of atoms
"""

from __future__ import annotations

from collections.abc import Callable

from trnqc import jit
from trnqc.cg.cpu.contraction import recipe
from trnqc.jit import CompiledFunction
from trnqc.mace.nodes import forward, reverse
from trnqc.mace.nodes.plan import NodePlan
from trnqc.mace.nodes.stage import NodeProgram

# Largest number of atoms of a block. Matrix products multiply the atoms of a block with a matrix in the cache.
ATOMS = 24


class NodeKernels:
    """The programs of a plan, compiled or loaded from the cache."""

    def __init__(self, plan: NodePlan) -> None:
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


def _programs(plan: NodePlan) -> list[NodeProgram]:
    layers = range(len(plan.layers))
    return [make(plan, t) for t in layers for make in PROGRAMS]


PROGRAMS: tuple[Callable[[NodePlan, int], NodeProgram], ...] = (
    forward.messages,
    forward.features,
    reverse.features,
    reverse.messages,
)
