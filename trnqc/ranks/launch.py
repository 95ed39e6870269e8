"""How the ranks of a job are started, and the transports by which they exchange arrays. This needs no PyTorch.

Ranks are started by torchrun, or by anything else that sets the environment variables in `NEEDED` for every process.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

# Environment variables: the number of a rank, the number of ranks, and the address and port of the store of the job.
NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Transport:
    """A way to exchange arrays.

    Attributes
    ----------
    name
        The name of the backend of torch.distributed.
    module
        The module that registers this backend; None if PyTorch has it.
    device
        The device of the tensors that it exchanges.
    """

    name: str
    module: str | None
    device: str


TRANSPORTS = {
    "cpu": Transport("gloo", None, "cpu"),
    "cuda": Transport("nccl", None, "cuda"),
    "neuron": Transport("neuron", "torch_neuronx", "neuron"),
    "xla": Transport("xla", "torch_xla.distributed.xla_backend", "xla"),
}
"""Transports by the names that users pass."""


def missing_variables() -> list[str]:
    """The variables in `NEEDED` that are not set. All of them are set in a process that was started as a rank."""
    return [name for name in NEEDED if name not in os.environ]
