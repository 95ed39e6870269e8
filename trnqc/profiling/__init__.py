"""Profiles of kernels, modelled and measured, read, analysed and shown.

file -> readers -> Profile -> activity, utilisation, compare -> tables in the terminal, an HTML page, a Perfetto trace

Nothing here imports the simulator or runs a kernel: a profile is a file, wherever it was made.
"""

from __future__ import annotations

from trnqc.profiling.compare import Comparison, compare
from trnqc.profiling.profile import Profile
from trnqc.profiling.readers import read

__all__ = ["Comparison", "Profile", "compare", "read"]
