"""One molecule on a Trainium device and on the CPU, from the same factors: passes if both spin components agree.

    python -m scripts.device.run_mp2 caffeine --basis cc-pvdz --precision fp32 [--json result.json]
    python -m scripts.device.run_mp2 water --backend simulator        the same way without a device

Exit status 0 if each component differs from the fp64 CPU result by at most --tolerance Hartree, else 1; 2 if the job
could not run. docs/trainium.md says how to set the machine up.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from trnqc.errors import TrnqcError
from trnqc.mp2.job import Job
from trnqc.mp2.reference.molecule import load_geometry
from trnqc.mp2.run import run


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("geometry", help="xyz file, or a name from examples/molecules")
    parser.add_argument("--basis", default="cc-pvdz")
    parser.add_argument("--precision", default="fp32", choices=("fp32", "bf16x3", "bf16"))
    parser.add_argument("--backend", default="neuron", choices=("neuron", "simulator"))
    parser.add_argument("--apart", action="store_true", help="GEMM kernel and energy expression apart")
    parser.add_argument("--tolerance", type=float, default=1e-6, help="Hartree, for each spin component")
    parser.add_argument("--json", type=Path, help="write the whole result here")
    return parser.parse_args()


def main() -> int:
    options = parse()
    job = Job(
        load_geometry(options.geometry),
        basis=options.basis,
        backend=options.backend,
        precision=options.precision,
        fused=not options.apart,
        compare_with=[("cpu", "fp64")],
    )
    try:
        result = run(job)
    except TrnqcError as error:
        print(f"device.run_mp2: {error}", file=sys.stderr)
        return 2
    if options.json:
        result.save(options.json)
    (reference,) = result.comparisons
    print(f"ran on          {result.run.ran_on}, {result.run.precision}")
    passed = True
    for name, energy, difference in (
        ("opposite spin", result.e_corr_os, -reference.difference_os),
        ("same spin", result.e_corr_ss, -reference.difference_ss),
    ):
        passed &= abs(difference) <= options.tolerance
        print(f"{name:15s} {energy:+.10f} Hartree, {difference:+.1e} from cpu fp64")
    print(f"pairs           {result.timings['pairs']:.3f} s, cpu fp64 {reference.seconds:.3f} s (compilation included)")
    print("PASS" if passed else f"FAIL: more than {options.tolerance:g} Hartree")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
