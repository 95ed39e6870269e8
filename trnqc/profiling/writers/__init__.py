"""Files for other tools, as text.

profiles -> trace for Perfetto, analysis as JSON -> text, which the command line writes
"""

from __future__ import annotations

from trnqc.profiling.writers.analysis import analysis
from trnqc.profiling.writers.perfetto import trace

__all__ = ["analysis", "trace"]
