"""Scripts about jobs of several ranks: clusters, simulated events and plots; benchmarks run in slow tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from scripts.bench_scaling import EXPECTED, exponent
from scripts.jobs.scaling_plot import plot
from scripts.jobs.simulation import Cyclic, Network, Workload, files_seconds, projected, visits_seconds
from scripts.workloads.alanine import alanine
from scripts.workloads.waters import APART, MONOMER, waters
from trnqc.mp2.pairs.rounds import Rounds
from trnqc.mp2.partition.distribution import RowDistribution

ROOT = Path(__file__).resolve().parents[2]
FAST = Network(bandwidth=1e30, latency=0.0, files=1e30)
SLOW = Network(bandwidth=1e6, latency=1e-3, files=1e7)
MEASURED = {
    "nao": 24,
    "nocc": 4,
    "nvir": 19,
    "naux": 84,
    "metric_s": 1e-3,
    "fit_s": 2e-3,
    "columns": [
        {"functions": 40, "integrals_s": 4e-3, "transformation_s": 1e-3},
        {"functions": 44, "integrals_s": 4e-3, "transformation_s": 1.2e-3},
    ],
    "blocks": [{"cost": 1e6, "seconds": 1e-3}, {"cost": 2e6, "seconds": 2.2e-3}],
}
WORK = Workload(240, 40, 190, 840, 64, MEASURED)


def total():
    spread = Rounds(RowDistribution(WORK.nocc, WORK.nvir, WORK.naux, 1))
    return WORK.pairs([b.cost(WORK.nvir, WORK.naux) for b in spread.blocks]).sum()


def test_helices_are_peptides_of_left_handed_alanine_with_hydrogen_bonds():
    for residues in (0, 1, 7):
        helix = alanine(residues)
        symbols, xyz = np.array(helix.symbols), np.array(helix.coordinates)
        assert {x: int((symbols == x).sum()) for x in "CHNO"} == {
            "C": 3 * residues + 3,
            "H": 5 * residues + 7,
            "N": residues + 1,
            "O": residues + 1,
        }
        distances = np.linalg.norm(xyz[:, None] - xyz, axis=2) + 9 * np.eye(len(xyz))
        heavy = symbols != "H"
        bonds = (distances < 1.6) & (heavy[:, None] & heavy) | (distances < 1.2)
        # A tree of bonds: every atom is bonded, hydrogen atoms once, and nothing closes a ring.
        assert bonds.sum() == 2 * (len(xyz) - 1) and (bonds[~heavy].sum(axis=1) == 1).all()
        assert np.where(bonds, 9, distances).min() > 1.6
    # O of a residue and H of the fourth after it.
    contacts = distances[np.ix_(symbols == "O", (symbols == "H") & bonds[:, symbols == "N"].any(axis=1))]
    np.testing.assert_allclose(np.diagonal(contacts, 3), 2.09, atol=0.05)
    # Seen from H, CO, the side chain and N of an L amino acid follow one another clockwise.
    for alpha in np.flatnonzero((symbols == "C") & (bonds[:, symbols == "N"].sum(axis=1) == 1))[:-1]:
        of = {x: [n for n in np.flatnonzero(bonds[alpha]) if symbols[n] == x] for x in "CHN"}
        if len(of["C"]) == 2:
            carbonyl, side = sorted(of["C"], key=lambda n: not bonds[n, symbols == "O"].any())
            n, co, r = (xyz[m] - xyz[alpha] for m in (of["N"][0], carbonyl, side))
            assert np.linalg.det([co, r, n]) > 0


def test_clusters_grow_by_one_molecule_and_never_clash():
    large = waters(13)
    assert waters(13) == large and waters(1).formula == "H2O"
    assert waters(12).coordinates == large.coordinates[:36]
    xyz = np.array(large.coordinates).reshape(13, 3, 3)
    shape = np.linalg.norm(MONOMER[:, None] - MONOMER, axis=2)
    for n, molecule in enumerate(xyz):
        np.testing.assert_allclose(np.linalg.norm(molecule[:, None] - molecule, axis=2), shape, atol=1e-12)
        others = np.delete(xyz, n, axis=0).reshape(-1, 3)
        assert np.linalg.norm(molecule[:, None] - others, axis=2).min() >= APART


@pytest.mark.parametrize("kind", [Rounds, Cyclic])
@pytest.mark.parametrize("devices", [1, 2, 7])
def test_visits_take_no_less_than_their_work_and_no_more_than_one_device(kind, devices):
    spread = kind(RowDistribution(WORK.nocc, WORK.nvir, WORK.naux, devices))
    assert sum(len(v.blocks) for visits in spread.visits for v in visits) == len(spread.blocks)
    fast, slow = (visits_seconds(WORK, spread, net) for net in (FAST, SLOW))
    assert total() / devices - 1e-9 <= fast <= total() + 1e-9
    assert slow >= fast and (slow > fast or devices == 1)


def test_one_device_does_all_the_work_and_a_fast_network_costs_nothing():
    assert files_seconds(WORK, 1, FAST) == pytest.approx(total())
    assert visits_seconds(WORK, Rounds(RowDistribution(WORK.nocc, WORK.nvir, WORK.naux, 1)), SLOW) == pytest.approx(
        total()
    )
    assert files_seconds(WORK, 4, FAST) < 1.1 * total() / 4
    assert files_seconds(WORK, 4, SLOW) > files_seconds(WORK, 4, FAST)


def test_every_way_of_sharing_is_projected():
    result = projected(WORK, 4, FAST)
    assert set(result) == {"static", "cyclic", "dynamic"}
    for way in result.values():
        assert way["mp2_s"] == pytest.approx(way["factors_s"] + way["pairs_s"]) and way["factors_s"] > 0


def rows(power):
    names = [*EXPECTED, "error estimate"]
    return [
        {"n": n, "seconds": dict.fromkeys(names, 0.001 * n**power), "peak_mb": {"start": 90.0, "pairs": 90.0 + n**3}}
        for n in (2, 4, 6, 8)
    ]


def test_exponents_and_their_plot():
    record = {
        "basis": "cc-pvdz",
        "threads": 1,
        "rows": rows(2.5),
        "expected": EXPECTED,
        "exponents": {s: exponent(rows(2.5), lambda row, s=s: row["seconds"][s]) for s in EXPECTED},
    }
    assert all(slope == pytest.approx(2.5) for slope in record["exponents"].values())
    assert exponent(rows(1)[:2], lambda row: row["seconds"]["SCF"]) is None
    svg = ElementTree.fromstring(plot(record))
    lines = svg.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 2 * len(EXPECTED)
    assert "pairs: n^2.5, expected n^5" in [text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.slow
def test_the_benchmarks_on_the_smallest_molecules(tmp_path):
    def run(*command):
        subprocess.run([sys.executable, *command], cwd=ROOT, check=True, capture_output=True, timeout=500)

    ranks, projection, scaling = (tmp_path / f"{name}.json" for name in ("ranks", "projection", "scaling"))
    run("-m", "scripts.jobs.bench_ranks", "--case", "water2/sto-3g", "--rounds", "1", "--out", str(ranks))
    record = json.loads(ranks.read_text())["cases"]["water2/sto-3g"]
    assert set(record["efficiency"]["mp2"]) == {"1", "2"} and record["tasks"]["blocks"]
    run("-m", "scripts.model.project_ranks", "--tasks", str(ranks), "--devices", "1", "4", "--out", str(projection))
    assert json.loads(projection.read_text())["kind"].startswith("PROJECTION")
    for count in (1, 2):
        run("-m", "scripts.bench_scaling", "--basis", "sto-3g", "--max-n", str(2 * count), "--out", str(scaling))
        assert len(json.loads(scaling.read_text())["rows"]) == count
    assert scaling.with_suffix(".svg").read_text().startswith("<svg")
