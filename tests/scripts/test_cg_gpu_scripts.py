"""The GPU benchmark of tensor products rehearsed on a simulated device, and peers by their interfaces."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from scripts.device import bench_cg
from scripts.registers import cg as cg_registers
from scripts.workloads import tensor_product_oracle as oracle
from scripts.workloads.tensor_products import awkward
from trnqc.cg.problem.graph import EdgeGraph
from trnqc.errors import BackendUnavailable
from trnqc.jit.device import cuda_devices


def test_the_benchmark_is_rehearsed(tmp_path, capsys):
    path = tmp_path / "gpu.json"
    arguments = [
        "uvu-1",
        "--simulate",
        "--contractions",
        "tiny",
        "--batch",
        "3",
        "--rounds",
        "1",
        "--dtypes",
        "float64",
        "--out",
        str(path),
    ]
    assert bench_cg.main(arguments) == 0
    record = json.loads(path.read_text())
    assert record["kind"] == "simulated device, no figure counts"
    passes = [row["pass"] for row in record["rows"]]
    assert passes[:3] == ["forward", "backward", "double_backward"]
    assert passes[-2:] == ["conv_forward", "conv_backward"]
    # Symmetric contractions, between products and convolutions.
    assert set(passes[3:-2]) == {"value", "gradient", "gradients", "second"}
    assert all(row["seconds"]["ours"] > 0 for row in record["rows"])
    assert set(record["rows"][-1]["ratios"]) == {"ours, atomic"}
    assert "written to" in capsys.readouterr().out


def test_the_gate_holds_results(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(bench_cg.GATE, "float64", -1.0)
    arguments = ["uvu-1", "--simulate", "--batch", "3", "--dtypes", "float64", "--out", str(tmp_path / "gpu.json")]
    assert bench_cg.main(arguments) == 2
    assert "uvu-1: forward is off by" in capsys.readouterr().out


def test_without_a_gpu_it_says_so(capsys, tmp_path):
    try:
        cuda_devices()
    except BackendUnavailable as reason:
        assert bench_cg.main(["uvu-5", "--out", str(tmp_path / "gpu.json")]) == 2
        assert str(reason).split("(")[0].strip() in capsys.readouterr().out
    else:
        pytest.skip("there is a GPU")


def test_a_peer_gives_the_derivatives_that_are_timed():
    torch = pytest.importorskip("torch")
    pytest.importorskip("e3nn")
    from scripts.cg.peers import Peer, e3nn_eager

    problem = awkward("uvu-5")
    inputs = bench_cg.operands(problem, 4, "float64")
    held = {name: torch.as_tensor(array) for name, array in inputs.items()}
    peer = Peer(e3nn_eager(problem, held["x"]))
    ours = list(inputs.values())
    result = {name: peer.work(name, held)() for name in bench_cg.BATCHES}
    for name, operands in {"forward": ours[:3], "backward": ours[:4], "double_backward": ours}.items():
        wanted = getattr(oracle, name)(problem, *operands)
        theirs = result[name] if isinstance(result[name], tuple) else (result[name],)
        for a, b in zip(theirs, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
            # e3nn makes its constants in the default precision.
            np.testing.assert_allclose(a.detach().numpy(), b, rtol=0, atol=1e-5)


def test_a_convolution_of_a_peer_gathers_by_sender_and_sums_by_receiver():
    torch = pytest.importorskip("torch")
    pytest.importorskip("e3nn")
    from scripts.cg.peers import Peer, e3nn_eager, gathered

    problem, (rows, cols) = awkward("uvu-5"), np.random.default_rng(0).integers(0, 5, (2, 20))
    inputs = bench_cg.operands(problem, 20, "float64", 5)
    held = {name: torch.as_tensor(array) for name, array in inputs.items()}
    peer = Peer(gathered(e3nn_eager)(problem, held["x"], torch.as_tensor(rows), torch.as_tensor(cols)))
    graph, ours = EdgeGraph(rows, cols, 5), list(inputs.values())
    wanted = (oracle.conv_forward(problem, *ours[:3], graph), *oracle.conv_backward(problem, *ours[:4], graph))
    for a, b in zip((peer.work("forward", held)(), *peer.work("backward", held)()), wanted, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b, rtol=0, atol=1e-4)


@pytest.mark.skipif(not shutil.which("nvcc"), reason="needs the CUDA compiler")
def test_registers_are_told_beside_the_reference():
    result = cg_registers.row("mace-medium", 4, "forward", "sm_80")
    assert result["spill_stores"] == result["spill_loads"] == 0 and result["resident_warps"] >= 16
    assert result["traffic"] <= 1.05 and result["mul_and_fma"] > 200
    assert "reference_registers" not in result
    assert "mace-medium forward" in cg_registers.text(result)
