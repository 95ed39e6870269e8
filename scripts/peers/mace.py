"""mace-torch: its tests of its calculator."""

from __future__ import annotations

from scripts.peers.peer import Peer

PEER = Peer(
    name="mace",
    repository="https://github.com/ACEsuit/mace",
    tag="v{version}",
    files=("tests/test_calculator.py",),
    swap="scripts.peers.swap.mace",
    ways={"ours": {}},
    arguments=("-p", "scripts.peers.swap.mace_fixtures"),
    distribution="mace-torch",
)
