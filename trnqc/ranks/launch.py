"""How the ranks of a job are started, and what they can exchange arrays over: no PyTorch here.

torchrun, or anything else that sets the variables of `NEEDED` in every process, starts ranks.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

# Variables of the environment that tell a process its place in the job, and where the ranks meet.
NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Transport:
    """A way to exchange arrays.

    Attributes
    ----------
    name
        The backend of torch.distributed.
    module
        The module that registers it; None if PyTorch does.
    device
        The device of its tensors.
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
"""By the name that users give."""


def missing_variables() -> list[str]:
    """Variables of `NEEDED` that are not set; none in a process that was started as one rank of a job."""
    return [name for name in NEEDED if name not in os.environ]
