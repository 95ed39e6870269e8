"""Benchmarks with shorter vectors than the CPU has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

from trnqc.host.blas import fastest_core
from trnqc.jit import find_compiler

# The environment without a choice of kernels.
PLAIN = {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"}
ROOT = Path(__file__).resolve().parents[2]


def test_a_script_starts_anew_without_avx512(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            f"""
        import json, sys
        from pathlib import Path
        sys.path.insert(0, {str(ROOT)!r})
        from scripts import vectors
        from scripts.measuring import machine
        vectors.keep_to(*sys.argv[1:])
        from trnqc.host.blas import numpy_blas
        from trnqc.jit import find_compiler
        blas = numpy_blas()
        facts = machine()
        print(json.dumps([find_compiler().vector_bytes, blas.name, blas.core, facts["vectors"],
                          facts["OPENBLAS_CORETYPE"], vectors.beside(Path("some.json")).name]))
        """
        )
    )

    def run(*choices: str) -> list:
        line = [sys.executable, str(script), *choices]
        return json.loads(subprocess.run(line, env=PLAIN, capture_output=True, text=True, check=True).stdout)

    *_, vectors, core, name = run("native")
    assert (vectors, core, name) == ("native", fastest_core(), "some.json")
    *_, core, name = run("native", "installed")
    assert (core, name) == (None, "some_installed.json")
    width, blas, core, vectors, _, name = run("avx2")
    assert width == min(find_compiler().vector_bytes, 32)
    assert core == "Haswell" or blas != "OpenBLAS"
    assert (vectors, name) == ("avx2", "some_avx2.json")
