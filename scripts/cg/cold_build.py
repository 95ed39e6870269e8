"""Seconds from a problem to the compiled functions of a batch, with the cache that the environment names."""

from __future__ import annotations

import json
import os
import sys
import time

from scripts.workloads.tensor_products import configuration
from trnqc.cg.cpu.engine import compiled_engine


def spent() -> tuple[float, float]:
    """Wall seconds, and CPU seconds of this process and of the compilers that it started."""
    return time.perf_counter(), sum(os.times()[:4])


def main(label: str, dtype: str) -> None:
    engine = compiled_engine(configuration(label), dtype, 1)
    before = spent()
    for name in ("forward", "backward", "double_backward"):
        engine.build(name)
    wall, cpu = (b - a for a, b in zip(before, spent(), strict=True))
    row = {"case": label, "dtype": dtype, "wall seconds": wall, "cpu seconds": cpu, "report": engine.build_report}
    print(json.dumps(row))


if __name__ == "__main__":
    main(*sys.argv[1:])
