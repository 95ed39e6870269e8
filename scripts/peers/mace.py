"""mace-torch: its tests of its calculator."""

from __future__ import annotations

from scripts.peers.peer import Exclusion, Peer

EXCLUSIONS = (
    Exclusion(
        "test_calculator_node_energy",
        "It reads node_energy, which ours does not have, and builds a batch by a private method of mace-torch's.",
    ),
)

PEER = Peer(
    name="mace",
    repository="https://github.com/ACEsuit/mace",
    tag="v{version}",
    files=("tests/test_calculator.py",),
    swap="scripts.peers.swap.mace",
    ways={"ours": {}},
    exclusions=EXCLUSIONS,
    arguments=("-p", "scripts.peers.swap.mace_fixtures"),
    distribution="mace-torch",
)
