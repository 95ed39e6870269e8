"""The processes ("ranks") of one job: how they divide work, exchange arrays, and notice that one of them has failed.

    torchrun -> transport.started -> Ranks -> dealt, balanced -> each rank's tasks -> Ranks.sum, Ranks.exchange
                       |
                     watch: ends all ranks when one of them dies, hangs or fails

launch      what starts ranks, and the transports that there are
groups      the interface `Ranks`, the job of one process `ALONE`, and how tasks are divided; needs NumPy only
transport   ranks over torch.distributed; imported when a job of several processes starts, since it needs PyTorch
watch       the heartbeat of every rank
"""

from trnqc.ranks.groups import ALONE, SCHEDULES, Alone, Message, Pending, Ranks, balanced, dealt, dearest_first
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
]
