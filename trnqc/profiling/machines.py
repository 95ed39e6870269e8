"""Peak rates and bandwidths by target, per physical NeuronCore unless stated otherwise.

Source: the vendor's architecture pages and DMA bandwidth guide. Peak rates follow from the array and its clock,
2 x 128 x 128 x clock, as the vendor's utilisation figures define them; HBM takes the lower of two published figures.
"""

from __future__ import annotations

from dataclasses import dataclass

from trnqc.errors import InputError

# Rows and columns of the systolic array of TensorE.
PE_ROWS = PE_COLUMNS = 128
# Passes through the array of one fp32 matmul.
FP32_PASSES = 4
# DMA engines per core.
DMA_ENGINES = 16


@dataclass(frozen=True)
class Machine:
    """Properties of one target: clock of TensorE in GHz, sizes of `sbuf` and `psum` in bytes per partition.

    `cores` are NeuronCores per chip, `hbm_chip` the HBM bandwidth of the chip in bytes/s, `hbm_stacks` its HBM stacks,
    `dma_practical` the rate in bytes/s that one DMA engine reaches in practice, `words` a description for reports.
    """

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
        """Dense bf16 peak of TensorE in flop/s."""
        return 2.0 * PE_ROWS * PE_COLUMNS * self.tensor_ghz * 1e9

    @property
    def peak_fp32(self) -> float:
        """Dense fp32 peak of TensorE in flop/s; fp32 takes four passes through the array."""
        return self.peak / FP32_PASSES

    @property
    def hbm_stack(self) -> float:
        """Bandwidth of one HBM stack in bytes/s, the denominator of the vendor's bandwidth utilisation."""
        return self.hbm_chip / self.hbm_stacks

    @property
    def hbm_share(self) -> float:
        """Bandwidth in bytes/s of one core when all cores of the chip stream."""
        return self.hbm_chip / self.cores

    @property
    def dma(self) -> float:
        """Rate in bytes/s that the DMA engines of a core reach together in practice."""
        return DMA_ENGINES * self.dma_practical


# Bytes.
KIB = 1024
# Target -> its machine.
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
    """Return the machine of a target. Raises InputError if the target is unknown."""
    if target not in MACHINES:
        raise InputError(f"target: expected one of {', '.join(MACHINES)}, found {target!r}")
    return MACHINES[target]


def target_of(name: str) -> str | None:
    """Return the target of an instance type (``trn1.2xlarge``), family or target name, or None if it is unknown."""
    return FAMILIES.get(name.strip().lower().split(".")[0])
