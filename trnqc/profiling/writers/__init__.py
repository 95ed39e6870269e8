"""Profiles -> files for other tools: a Perfetto trace and the analysis as JSON. All are written aside and renamed."""

from __future__ import annotations

from trnqc.profiling.writers.analysis import analysis
from trnqc.profiling.writers.perfetto import trace

__all__ = ["analysis", "trace"]
