"""The kernels of an engine on a GPU, compiled when they are first launched."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from trnqc.cg.cuda.operands import refuse_capture
from trnqc.gen.statements import Function
from trnqc.jit import Recipe
from trnqc.jit.device import BuiltKernel, Device

# Number of lanes of a warp.
WARP = 32
# Blocks per multiprocessor for which the variants of a kernel are compiled, which limits the number of registers. 0
# leaves the limit to the compiler.
BLOCKS = (0, 8)


def least_spilled(variants: Iterable[BuiltKernel]) -> BuiltKernel:
    """Return the first variant that does not spill registers, else the one that spills least.

    Variants are compiled only until one does not spill.
    """
    best: BuiltKernel | None = None
    for built in variants:
        if best is None or built.stack < best.stack:
            best = built
        if not best.stack:
            break
    assert best is not None
    return best


class Builds:
    """The kernels that an engine has built, by name."""

    def __init__(self, device: Device) -> None:
        self.device, self.lanes = device, min(WARP, device.most_lanes)
        self.built: dict[str, BuiltKernel] = {}

    def of(self, name: str, recipe: Callable[[], Recipe], blocks: Iterable[int] = BLOCKS) -> BuiltKernel:
        """Return a kernel, which is built at the first call. On a tie, the first of the variants is used."""
        if name not in self.built:
            refuse_capture(name)
            made = recipe()
            variants = (self.device.build(made, self.lanes, accumulate="plain", min_blocks=n) for n in blocks)
            self.built[name] = least_spilled(variants)
        return self.built[name]

    def sum(self, function: Callable[[int, int], Function], size: int) -> BuiltKernel:
        """Return a kernel of `row_sums` for elements of `size` bytes."""
        return self.of(function.__name__, lambda: Recipe.of(function(size, self.lanes)), blocks=(0,))
