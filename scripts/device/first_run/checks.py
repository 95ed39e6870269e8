"""Small cases against independent results: the interpreter, dense sums, the CPU, PySCF. Each takes a few seconds.

A check returns errors by case, and raises AssertionError or TrnqcError where one is too large.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trnqc.gen import Array, Var
from trnqc.gen import run as interpreted
from trnqc.gen import statements as st
from trnqc.gen.values import fma
from trnqc.jit import Recipe
from trnqc.jit.device import Device, cuda_devices
from trnqc.jit.simulated_device import SimulatedDevice

Errors = dict[str, float]
# Relative to the largest number: a few roundings of doubles.
ROUNDING = 1e-13
# Hartree, of elements of J and K of small molecules.
GATE_JK = 1e-9
# Problems of tensor products and of symmetric contractions, the smallest first, and precisions of MP2.
TENSOR_PRODUCTS = ("uvu-5", "mace-medium", "DiffDock-L=2")
CONTRACTIONS = ("tiny", "mace-large")
PRECISIONS = ("fp64", "fp32", "bf16x3")
# Passes of a batch and of a convolution.
PASSES = ("forward", "backward", "double_backward")
CONVOLUTIONS = ("conv_forward", "conv_backward")


def device(simulate: bool, lanes: int = 8) -> Device:
    """The first GPU, or a simulated one."""
    return SimulatedDevice(lanes=lanes) if simulate else cuda_devices()[0]


def jit(simulate: bool) -> Errors:
    """Copies, streams and a launch: y = a x + x^2 for each lane of each group, against the interpreter."""
    there, lanes, groups, n = device(simulate), 8 if simulate else 64, 7, 5
    count, group, i = (Var(name, "i64") for name in ("n", "group", "i"))
    x, y = (Array(name, "f64", (None, count), lanes=True) for name in "xy")
    body = st.loop(i, count, st.store(y[group, i], fma(Var("a"), x[group, i], x[group, i] * x[group, i])))
    program = st.Function("first_run", (count, Var("a"), x, y), st.block(body), group=group)
    inputs = np.random.default_rng(0).normal(size=(groups, n, lanes))
    wanted = {"n": n, "a": 1.25, "x": inputs, "y": np.zeros_like(inputs)}
    interpreted(program, wanted, lanes=lanes, groups=(0, groups))
    built, memory, result = there.build(Recipe.of(program), lanes), there.upload(inputs), there.zeros(*inputs.shape)
    errors = {}
    for stream in range(there.streams):
        there.write(result, np.zeros_like(inputs))
        there.launch(built, groups, {"n": n, "a": 1.25, "x": memory, "y": result}, stream)
        there.synchronize()
        errors[f"stream {stream}"] = float(abs(there.download(result) - wanted["y"]).max())
    there.release(memory, result)
    return gated(errors, ROUNDING)


def tensor_products(simulate: bool) -> Errors:
    """Batches, convolutions and symmetric contractions in fp64 and fp32 against dense sums."""
    from scripts.device import bench_cg, contractions
    from scripts.workloads import tensor_product_oracle as oracle
    from trnqc.cg.cuda.engine import CudaEngine
    from trnqc.cg.problem.graph import EdgeGraph
    from trnqc.cg.programs.directions import DIRECTIONS

    errors, there = {}, device(simulate)
    rng, nodes, edges = np.random.default_rng(0), 7, 90
    rows, cols = rng.integers(0, nodes, (2, edges))
    graph = EdgeGraph(rows, cols, nodes)
    for label in TENSOR_PRODUCTS[:1] if simulate else TENSOR_PRODUCTS:
        problem = bench_cg.problem_of(label)
        for dtype in ("float64",) if simulate else ("float64", "float32"):
            engine = CudaEngine(problem, dtype, there)
            for name in (*PASSES, *CONVOLUTIONS):
                of_edges = name in CONVOLUTIONS
                given = bench_cg.operands(problem, edges if of_edges else 20, dtype, nodes if of_edges else None)
                ours = [given[n] for n in DIRECTIONS[name].reads]
                more = {"graph": graph} if of_edges else {}
                result = getattr(engine, name)(*ours, **more)
                wanted = getattr(oracle, name)(problem, *ours, **more)
                pairs = zip(result, wanted) if isinstance(wanted, tuple) else [(result, wanted)]
                case = f"{label} {dtype} {name}"
                errors[case] = max(oracle.error(a, b) for a, b in pairs)
                gated({case: errors[case]}, bench_cg.GATE[dtype])
    for label in CONTRACTIONS[:1] if simulate else CONTRACTIONS:
        for dtype in ("float64",) if simulate else ("float64", "float32"):
            found = contractions.check(label, dtype, there)
            errors |= {f"contraction of {label} {dtype} {name}": error for name, error in found.items()}
    return errors


def mp2(simulate: bool) -> Errors:
    """Pair energies of random factors against the CPU's in fp64, in every precision that the GPU has."""
    from scripts.device import bench_mp2_cuda
    from trnqc.backends.cuda.backend import Cuda
    from trnqc.errors import UnsupportedPrecision

    gpus, errors = bench_mp2_cuda.simulated_gpus() if simulate else Cuda().gpus(), {}
    for precision in PRECISIONS:
        try:
            if not simulate:
                Cuda().require_accuracy(precision)
        except UnsupportedPrecision:
            continue
        errors[precision] = bench_mp2_cuda.measure(gpus, "tiny", precision, 1, None)["relative_error"]
    return errors


def integrals(momenta: Sequence[int], simulate: bool) -> Errors:
    """J and K of two atoms with shells of these angular momenta, on all devices, against PySCF's."""
    from pyscf import scf

    from trnqc.eri.cuda.builder import CudaJKBuilder

    mol = atoms(momenta)
    dm = np.random.default_rng(0).normal(size=(mol.nao_nr(), mol.nao_nr()))
    dm += dm.T
    # Unchecked, as threads of kernels with checks take several times as long; tests have them.
    there = [SimulatedDevice(lanes=4, checked=False)] if simulate else cuda_devices()
    builder = CudaJKBuilder(mol, devices=there)
    results = builder.get_jk(dm)
    # A form of a kernel that is replaced by the next, say: worth a look at the log, and no wrong result.
    for note in builder.notes:
        print(f"note: {note}")
    pairs = zip("JK", results, scf.hf.get_jk(mol, dm))
    return gated({name: float(abs(ours - theirs).max()) for name, ours, theirs in pairs}, GATE_JK)


def atoms(momenta: Sequence[int]) -> Any:
    """Two atoms with a shell of one primitive for each angular momentum, as a molecule of PySCF."""
    from pyscf import gto

    shells = [[l, [0.9 - 0.1 * l, 1.0]] for l in momenta]
    return gto.M(atom="He 0 0 0; He 0.4 0.3 1.5", basis={"He": shells}, verbose=0)


def gated(errors: Errors, allowed: float) -> Errors:
    """Return the errors. Raises AssertionError if one is larger than allowed, or no number."""
    for case, error in errors.items():
        assert error <= allowed, f"{case} is off by {error:.1e}, allowed {allowed:.0e}"
    return errors
