"""The GPU benchmark rehearsed on simulated devices, and counted sizes."""

from __future__ import annotations

import json

import numpy as np
import pytest
from pyscf import gto

from scripts.device import bench_eri
from scripts.eri.counting_device import CountingDevice
from scripts.eri.gpu_sizes import record_of
from scripts.workloads.trp_cage import ATOMS, FILE
from trnqc.eri.cuda.builder import CudaJKBuilder
from trnqc.errors import BackendUnavailable
from trnqc.jit.device import cuda_devices
from trnqc.jit.simulated_device import SimulatedDevice


@pytest.mark.parametrize("tiers", [[], ["split"]])
def test_the_gpu_benchmark_is_rehearsed(tiers, tmp_path, monkeypatch, capsys):
    path = tmp_path / "gpu.json"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hydrogen.xyz").write_text("2\n\nH 0 0 0\nH 0 0 0.74\n")
    arguments = ["hydrogen.xyz/6-31g", "--simulate", "--rounds", "1", "--out", str(path)]
    arguments += ["--tiers", *tiers] if tiers else []
    assert bench_eri.main(arguments) == 0
    record = json.loads(path.read_text())
    assert "no figure counts" in record["kind"]
    (row,) = record["cases"]
    assert row["tiers"] == tiers
    assert row["jk_error"] <= bench_eri.GATE_JK and row["energy_error"] <= bench_eri.GATE_ENERGY
    monkeypatch.setattr(bench_eri, "GATE_JK", 0.0)
    assert bench_eri.main(arguments) == 2
    assert "off by" in capsys.readouterr().out


def test_without_a_gpu_it_says_why(capsys):
    try:
        cuda_devices()
    except BackendUnavailable:
        assert bench_eri.main(["water/sto-3g"]) == 2
        said = capsys.readouterr().out
        assert "GPU" in said or "trnqc[cuda]" in said
    else:
        pytest.skip("there is a GPU here")


class QueueingDevice(SimulatedDevice):
    """Adds up the ket pairs that the screening programs queue."""

    queued = 0

    def run(self, launch, operands):
        super().run(launch, operands)
        groups, arguments = launch.groups, launch.arguments
        if launch.built.signature.name.startswith("screen"):
            self.queued += int(arguments["counts"].handle[:groups].sum())


def test_counted_sizes_are_those_of_a_simulated_device():
    mol = gto.M(atom="; ".join(f"H 0 {n % 3} {1.8 * n}" for n in range(14)), basis="sto-3g", verbose=0)
    dm, sizes = np.eye(14), {"lanes": 4, "memory": 1 << 34, "streams": 2}
    device = QueueingDevice(**sizes)
    CudaJKBuilder(mol, devices=[device]).get_jk(dm)
    exact = record_of(mol, dm, CountingDevice(device.multiprocessors, **sizes), sample=1000)
    quartets = exact["quartets"]
    assert quartets["computed"] == device.queued and quartets["error"] == 0
    assert quartets["computed"] < quartets["schwarz"] < quartets["pairs"] < quartets["all"] == 105 * 106 / 2
    assert exact["bytes"]["most"] == device.most_used and exact["launches"] == device.launches
    sampled = record_of(mol, dm, CountingDevice(device.multiprocessors, **sizes), sample=16)["quartets"]
    assert sampled["error"] > 0 and abs(sampled["computed"] - device.queued) < 4 * sampled["error"]


def test_the_peptide_has_the_atoms_of_its_sequence():
    mol = gto.M(atom=str(FILE), charge=1, basis="sto-3g", verbose=0)
    assert mol.natm == ATOMS and mol.nelectron % 2 == 0
    distances = gto.inter_distance(mol) + 9 * (np.arange(ATOMS)[:, None] == np.arange(ATOMS))
    assert 0.9 < distances.min() * 0.529177 < 1.1
