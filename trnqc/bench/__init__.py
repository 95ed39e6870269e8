"""This machine measured: whole jobs and kernels of trnqc beside the programs that a user would run instead.

    cases -> a process for each contestant, which work in turns -> rows -> table, JSON, one HTML page

``trnqc bench`` is the command of this room.
"""

from __future__ import annotations

from trnqc.bench.case import OURS, Case
from trnqc.bench.catalogue import CASES
from trnqc.bench.figure import Figure, Section
from trnqc.bench.page import page
from trnqc.bench.rows import Row
from trnqc.bench.runs import Contest, measure

__all__ = ["CASES", "OURS", "Case", "Contest", "Figure", "Row", "Section", "measure", "page"]
