"""Seconds from a problem to compiled functions of all directions; the cache is that of the environment."""

from __future__ import annotations

import json
import sys
import time

from tests.cg.configurations import configuration
from trnqc.cg.engine import PROGRAMS, engine_for


def main(label: str, dtype: str) -> None:
    engine = engine_for(configuration(label), dtype, 1)
    began = time.perf_counter()
    for name in PROGRAMS:
        engine.build(name)
    seconds = time.perf_counter() - began
    print(json.dumps({"case": label, "dtype": dtype, "seconds": seconds, "report": engine.build_report}))


if __name__ == "__main__":
    main(*sys.argv[1:])
