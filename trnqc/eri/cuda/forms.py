"""The form in which the programs of a class are built for a device: the first tier that its compiler can cope with."""

from __future__ import annotations

from typing import Any

from trnqc.eri.cuda import screen
from trnqc.eri.cuda.batch import work_recipe
from trnqc.eri.cuda.run import Programs
from trnqc.eri.cuda.tiers import absurd, candidates
from trnqc.eri.jk.batch import Batch
from trnqc.errors import CompilerError
from trnqc.jit.cubin_builder import CubinBuilder
from trnqc.jit.device import Device


def first_sound(device: Device | CubinBuilder, batch: Batch) -> tuple[Programs, list[str]]:
    """Build the programs of a batch in the first form that compiles without absurd spills.

    Parameters
    ----------
    device : Device or CubinBuilder
        A device, or a stand-in that only compiles. Both choose by the bytes of a thread beside its registers.
    batch : Batch
        The class of quartets, and whether J and K are wanted.

    Returns
    -------
    tuple
        The programs, and why each form before it is not used.

    Raises
    ------
    CompilerError
        If no form can be built.
    """
    failures: list[str] = []
    for tier in candidates(batch.cls):
        options: dict[str, Any] = {"accumulate": tier.accumulate, "min_blocks": tier.min_blocks}
        try:
            built = device.build(work_recipe(batch, tier), min(tier.lanes, device.most_lanes), **options)
        except CompilerError as error:
            failures.append(f"targets in {tier.name}: {str(error).splitlines()[0]}")
            continue
        if not absurd(built.stack):
            lanes = min(screen.LANES, device.most_lanes)
            return Programs(tier, device.build(screen.recipe(batch, lanes), lanes), built), failures
        failures.append(f"targets in {tier.name}: {built.stack} bytes a thread beside the registers")
    raise CompilerError(f"no form of {batch.name} can be built for {device.name}: {'; '.join(failures)}")
