"""The form in which the programs of a class are built for a device: by bytes beside registers, then by warps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trnqc.eri.cuda import screen
from trnqc.eri.cuda.batch import work_recipe
from trnqc.eri.cuda.launches import DriverPrograms
from trnqc.eri.cuda.targets import targets_recipe
from trnqc.eri.cuda.tiers import ENOUGH_WARPS, QUICK, Tier, absurd, candidates, nodes, traffic
from trnqc.eri.jk.batch import Batch
from trnqc.errors import CompilerError
from trnqc.jit.cubin_builder import CubinBuilder
from trnqc.jit.device import BuiltKernel, Device


@dataclass(frozen=True, eq=False)
class _Form:
    """A tier with its programs: that of the integrals, behind that of the targets if there is one.

    traffic: the bytes that the tier itself moves.
    """

    tier: Tier
    programs: tuple[BuiltKernel, ...]
    traffic: int

    @property
    def stack(self) -> int:
        """The most bytes of a thread beside its registers."""
        return max(built.stack for built in self.programs)

    @property
    def warps(self) -> int:
        """The fewest resident warps of a program, or as many as are enough where the device does not tell."""
        return min(built.warps or ENOUGH_WARPS for built in self.programs)

    @property
    def moved(self) -> int:
        """The bytes that a thread moves beside its registers."""
        return self.stack + self.traffic

    @property
    def is_enough(self) -> bool:
        """Whether no other form has to be tried."""
        return not self.moved and self.warps >= ENOUGH_WARPS


def first_sound(
    device: Device | CubinBuilder, batch: Batch, tiers: Sequence[str] = ()
) -> tuple[DriverPrograms, list[str]]:
    """Build the programs of a batch in the first form that keeps all values in registers and has enough warps.

    Without such a form, the one that moves the fewest bytes beside registers is used, of several the one with the most
    warps: spills, and what a tier keeps in memory by its nature (`tiers.traffic`). The forms of large classes take long
    to compile, and the first one without absurd spills is used.

    Parameters
    ----------
    device : Device or CubinBuilder
        A device, or a stand-in that only compiles. Both choose by the bytes of a thread beside its registers, and by
        the warps that a multiprocessor holds.
    batch : Batch
        The class of quartets, and whether J and K are wanted.
    tiers : sequence of str
        The names of the tiers that are tried, for classes that have one of these; by default all.

    Returns
    -------
    tuple
        The programs, and why each form that the compiler could not cope with is not used.

    Raises
    ------
    CompilerError
        If no form can be built.
    """
    failures: list[str] = []
    best: _Form | None = None
    for tier in _wanted(batch, tiers):
        if best and best.moved < traffic(batch.cls, tier):
            continue
        try:
            form = _built(device, batch, tier)
        except CompilerError as error:
            failures.append(f"targets in {tier.name}: {str(error).splitlines()[0]}")
            continue
        if absurd(form.stack):
            failures.append(f"targets in {tier.name}: {form.stack} bytes a thread beside the registers")
            continue
        if best is None or (form.moved, -form.warps) < (best.moved, -best.warps):
            best = form
        if form.is_enough or nodes(batch.cls) > QUICK:
            break
    if best is None:
        raise CompilerError(f"no form of {batch.name} can be built for {device.name}: {'; '.join(failures)}")
    lanes = min(screen.LANES, device.most_lanes)
    *targets, work = best.programs
    return DriverPrograms(best.tier, device.build(screen.recipe(batch, lanes), lanes), work, *targets), failures


def _wanted(batch: Batch, tiers: Sequence[str]) -> list[Tier]:
    """Return the tiers to try, in order."""
    everything = list(candidates(batch.cls))
    return [tier for tier in everything if tier.name in tiers] or everything


def _built(device: Device | CubinBuilder, batch: Batch, tier: Tier) -> _Form:
    """Build the programs of a tier. Raises CompilerError."""
    lanes = min(tier.lanes, device.most_lanes)
    options: dict[str, Any] = {"accumulate": tier.accumulate, "min_blocks": tier.min_blocks}
    recipes = [*([targets_recipe(batch, tier)] * tier.split), work_recipe(batch, tier)]
    built = tuple(device.build(recipe, lanes, **options) for recipe in recipes)
    return _Form(tier, built, traffic(batch.cls, tier))
