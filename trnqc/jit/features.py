"""The features of CPUs that compiled kernels need, for programs that check them before they load kernels."""

from __future__ import annotations

from trnqc.jit.compiler import Compiler

# By the macros that compilers predefine for them. trnqc/cg/cpp/cpu.h has a test for each.
FEATURES = {
    "__AVX__": "avx",
    "__AVX2__": "avx2",
    "__FMA__": "fma",
    "__BMI2__": "bmi2",
    "__AVX512F__": "avx512f",
    "__AVX512BW__": "avx512bw",
    "__AVX512DQ__": "avx512dq",
    "__AVX512VL__": "avx512vl",
}


def cpu_features(compiler: Compiler) -> list[str]:
    """The names of the features that the code of a compiler may use."""
    macros = {line.split()[1] for line in compiler.target.splitlines() if len(line.split()) > 1}
    return [feature for macro, feature in FEATURES.items() if macro in macros]
