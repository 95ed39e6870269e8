"""Peaks and bandwidths by target, per physical NeuronCore unless said otherwise.

Source: the vendor's architecture pages and DMA bandwidth guide. Peak rates follow from the array and its clock,
2 x 128 x 128 x clock, as the vendor's utilisation figures define them; HBM takes the lower of two published figures.
"""

from __future__ import annotations

from dataclasses import dataclass

from trnqc.errors import InputError

PE_ROWS = PE_COLUMNS = 128
FP32_PASSES = 4
DMA_ENGINES = 16


@dataclass(frozen=True)
class Machine:
    """clocks in GHz; sbuf, psum: bytes per partition; hbm_chip: bytes/s; dma_practical: bytes/s per DMA engine."""

    target: str
    words: str
    tensor_ghz: float
    sbuf: int
    psum: int
    cores: int
    hbm_chip: float
    hbm_stacks: int
    dma_practical: float

    @property
    def peak(self) -> float:
        """Dense bf16 flop/s of the Tensor engine."""
        return 2.0 * PE_ROWS * PE_COLUMNS * self.tensor_ghz * 1e9

    @property
    def peak_fp32(self) -> float:
        """fp32 takes four passes through the array."""
        return self.peak / FP32_PASSES

    @property
    def hbm_stack(self) -> float:
        """bytes/s of one HBM stack: the denominator of the vendor's bandwidth utilisation."""
        return self.hbm_chip / self.hbm_stacks

    @property
    def hbm_share(self) -> float:
        """bytes/s that a core gets when all cores of the chip stream."""
        return self.hbm_chip / self.cores

    @property
    def dma(self) -> float:
        """bytes/s that the core's sixteen DMA engines reach in practice."""
        return DMA_ENGINES * self.dma_practical


KIB = 1024
MACHINES = {
    machine.target: machine
    for machine in (
        Machine("trn1", "Trainium1, NeuronCore-v2", 2.8, 192 * KIB, 16 * KIB, 2, 820e9, 2, 17e9),
        Machine("trn2", "Trainium2, NeuronCore-v3", 2.4, 224 * KIB, 16 * KIB, 8, 2.9e12, 4, 23e9),
        Machine("trn3", "Trainium3, NeuronCore-v4", 2.4, 256 * KIB, 16 * KIB, 8, 4.7e12, 4, 33e9),
    )
}

# Instance families and other names -> target. inf2 has the cores of trn1.
FAMILIES = {"trn1n": "trn1", "inf2": "trn1", "trn2u": "trn2", "trn2n": "trn2"} | {name: name for name in MACHINES}


def machine(target: str) -> Machine:
    """The machine of a target; InputError on an unknown name."""
    if target not in MACHINES:
        raise InputError(f"target: expected one of {', '.join(MACHINES)}, found {target!r}")
    return MACHINES[target]


def target_of(name: str) -> str | None:
    """Target named by an instance type (``trn1.2xlarge``), family or target name; None if it is none of ours."""
    return FAMILIES.get(name.strip().lower().split(".")[0])
