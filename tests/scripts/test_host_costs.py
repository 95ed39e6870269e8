"""What a cycle of an SCF asks of the driver, counted where no kernel runs."""

from __future__ import annotations

from scripts.device import host_costs


def test_bytes_of_a_cycle(monkeypatch):
    monkeypatch.setattr(host_costs, "ROUNDS", 1)
    functions = 7
    there, host = (make("water", "sto-3g") for make in (host_costs.cycle_on_gpu, host_costs.cycle_on_host))
    assert there["orbitals"] == host["orbitals"] == functions
    # Up: eight coefficients of DIIS. Down: orbital energies, five sums, eight products of errors, and a status.
    assert (there["uploads"], there["uploaded_bytes"]) == (1, 8 * 8)
    assert (there["downloads"], there["downloaded_bytes"]) == (3, 8 * (functions + 5 + 8) + 4)
    assert there["eigenproblems"] == 1 and there["moved_bytes"] < host["moved_bytes"]
    # J and K for both, and elements of matrices in ten launches more.
    assert there["launches"] == host["launches"] + 10
    assert host["downloaded_bytes"] >= 8 * functions**2
