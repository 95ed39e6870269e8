"""The printed plan shows all stages, in words and as data in JSON's types."""

from __future__ import annotations

import json

from trnqc.contraction import einsum_plan
from trnqc.contraction.distribute.distribution import distribute
from trnqc.contraction.report import listing

FOUR = "acik,befl,dfjk,cdel->abij"
SHAPES = [(10, 10, 10, 10)] * 4
LADDER = ("Qae,Qbf,efij->abij", (40, 36, 36), (40, 36, 36), (36, 36, 5, 5))


def test_a_plan_shows_every_stage():
    text = str(einsum_plan(FOUR, *SHAPES, grid=(2, 2)))
    for said in (
        "6 N^6 = 6e+06",
        "the largest T1 with N^4",
        "peak memory",
        "locality",
        "L2: ",
        "distribution of result on 2 x 2",
        "an estimate",
        "no two steps share any",
    ):
        assert said in text
    assert "distribution" not in str(einsum_plan(FOUR, *SHAPES))


def test_fused_loops_are_pseudocode_with_tiles():
    text = str(einsum_plan(*LADDER, memory_limit=36**4 * 8 // 10))
    assert "tiles: " in text and "for " in text and " step " in text and "+= sum(" in text


def test_the_data_has_the_same_stages():
    plan = einsum_plan(FOUR, *SHAPES, grid=(2, 2))
    data = json.loads(json.dumps(plan.to_dict()))
    (part,) = data["assignments"][0]["parts"]
    assert [step["symbolic_multiply_adds"] for step in part["steps"]] == ["N^6"] * 3
    assert "sum(e,l) B[b,e,f,l] * D[c,d,e,l]" in part["loops"]
    assert data["largest_temporary"] == 10**4 and data["estimated_seconds"] > 0
    assert data["locality"][0]["matrices"] == [100, 100, 100]
    assert [level["name"] for level in data["locality"][0]["levels"]][-1].startswith("L")
    (distribution,) = data["distribution"]
    expected = distribute(plan.trees[0], (2, 2))
    assert distribution["elements_received"] == expected.volume and distribution["grid"] == [2, 2]
    assert [step["name"] for step in distribution["steps"]] == ["T1", "T2", "result"]


def test_blocks_of_large_matrices_fit_the_caches(monkeypatch):
    # Of some server's processors the largest cache holds all three matrices: this machine's are not asked for.
    caches = (("L3", 2**22), ("L2", 2**17))
    monkeypatch.setattr(listing, "cache_levels", lambda: caches)
    (product,) = einsum_plan("ab,bc->ac", (5000, 4000), (4000, 3000)).to_dict()["locality"]
    assert [level["name"] for level in product["levels"]] == ["L3", "L2"]
    for level in product["levels"]:
        assert level["blocks"] and level["loaded"] >= 5000 * 4000 + 4000 * 3000 + 5000 * 3000


def test_schedules_are_kept_with_tiles_and_loops():
    data = einsum_plan(*LADDER, memory_limit=36**4 * 8 // 10).to_dict()
    part = data["assignments"][0]["parts"][0]
    assert part["schedule"]["tiles"] and part["loops"] == part["schedule"]["loops"]
