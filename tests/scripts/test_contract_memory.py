"""The script that orders tiles by prediction and by measurement, on a case of a few milliseconds."""

from __future__ import annotations

from scripts.contract.memory import tiles


def test_every_pair_of_tiles_is_predicted_and_measured(capsys):
    record = tiles(2, 8, 4, rounds=1)
    assert [(row["b"], row["e"]) for row in record["rows"]] == [(b, e) for b in (2, 4, 8) for e in (2, 4, 8)]
    assert all(row["predicted"] > 0 and row["cpu_s"] > 0 for row in record["rows"])
    assert record["best_cpu_s"] <= record["chosen_cpu_s"]
    assert "rank correlation" in capsys.readouterr().out
