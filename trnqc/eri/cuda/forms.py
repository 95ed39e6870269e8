"""The form in which the programs of a class are built for a device: the first tier that spills nothing, or least."""

from __future__ import annotations

from typing import Any

from trnqc.eri.cuda import screen
from trnqc.eri.cuda.batch import work_recipe
from trnqc.eri.cuda.launches import Programs
from trnqc.eri.cuda.tiers import QUICK, Tier, absurd, candidates, nodes
from trnqc.eri.jk.batch import Batch
from trnqc.errors import CompilerError
from trnqc.jit.cubin_builder import CubinBuilder
from trnqc.jit.device import Built, Device


def first_sound(device: Device | CubinBuilder, batch: Batch) -> tuple[Programs, list[str]]:
    """Build the programs of a batch in the first form that keeps all values in registers, or in the one nearest to it.

    The forms of large classes take minutes to compile, and the first one without absurd spills is used.

    Parameters
    ----------
    device : Device or CubinBuilder
        A device, or a stand-in that only compiles. Both choose by the bytes of a thread beside its registers.
    batch : Batch
        The class of quartets, and whether J and K are wanted.

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
    best: tuple[Tier, Built] | None = None
    for tier in candidates(batch.cls):
        options: dict[str, Any] = {"accumulate": tier.accumulate, "min_blocks": tier.min_blocks}
        try:
            built = device.build(work_recipe(batch, tier), min(tier.lanes, device.most_lanes), **options)
        except CompilerError as error:
            failures.append(f"targets in {tier.name}: {str(error).splitlines()[0]}")
            continue
        if absurd(built.stack):
            failures.append(f"targets in {tier.name}: {built.stack} bytes a thread beside the registers")
            continue
        if best is None or built.stack < best[1].stack:
            best = tier, built
        if not built.stack or nodes(batch.cls) > QUICK:
            break
    if best is None:
        raise CompilerError(f"no form of {batch.name} can be built for {device.name}: {'; '.join(failures)}")
    lanes = min(screen.LANES, device.most_lanes)
    return Programs(best[0], device.build(screen.recipe(batch, lanes), lanes), best[1]), failures
