"""The processes ("ranks") of one job: how they divide work, exchange arrays, and notice that one of them has failed.

    torchrun -> transport.started -> Ranks -> dealt, balanced -> tasks of each rank -> Ranks.sum, Ranks.exchange
                       |
                     watch: ends all ranks if one of them dies, hangs or fails

launch       how ranks are started, and the transports
groups       the interface `Ranks`, the job of a single process `ALONE`, and the division of tasks; needs only NumPy
transport    the start and end of ranks over torch.distributed; imported by jobs of several processes only
torch_ranks  the interface `Ranks` over torch.distributed
neighbours   messages between ranks on one machine, from memory to memory
watch        the heartbeat of every rank
"""

from trnqc.ranks.groups import (
    ALONE,
    SCHEDULES,
    Alone,
    Message,
    Pending,
    Ranks,
    balanced,
    dealt,
    dearest_first,
    in_order,
)
from trnqc.ranks.launch import TRANSPORTS

__all__ = [
    "ALONE",
    "SCHEDULES",
    "TRANSPORTS",
    "Alone",
    "Message",
    "Pending",
    "Ranks",
    "balanced",
    "dealt",
    "dearest_first",
    "in_order",
]
