"""cotengra: its tests of `einsum` and `array_contract`, with `trnqc.einsum` in their place."""

from __future__ import annotations

from scripts.peers.peer import Exclusion, Peer

EXCLUSIONS: tuple[Exclusion, ...] = ()

PEER = Peer(
    name="cotengra",
    repository="https://github.com/jcmgray/cotengra",
    tag="v{version}",
    files=("tests/test_interface.py", "tests/test_compute.py"),
    swap="scripts.peers.swap.cotengra",
    ways={"einsum": {"PEERS_SWAP": "einsum"}},
    exclusions=EXCLUSIONS,
)
