"""Reading, analysis and display of modelled and measured kernel profiles.

file -> readers -> Profile -> activity, utilisation, compare -> tables in the terminal, an HTML page, a Perfetto trace

No module here imports the simulator or runs a kernel; profiles are read from files.
"""

from __future__ import annotations

from trnqc.profiling.compare import Comparison, compare
from trnqc.profiling.profile import Profile
from trnqc.profiling.readers import read

__all__ = ["Comparison", "Profile", "compare", "read"]
