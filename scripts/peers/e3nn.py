"""e3nn: its tests of TensorProduct and of the classes on top of it."""

from __future__ import annotations

from scripts.peers.peer import Exclusion, Peer

EXCLUSIONS = (
    Exclusion("test_save", "The test saves and loads what TorchScript made of the module; ours is no TorchScript."),
)

PEER = Peer(
    name="e3nn",
    repository="https://github.com/e3nn/e3nn",
    tag="{version}",
    files=("tests/o3/tensor_product_test.py", "tests/o3/tensor_product_sub_test.py"),
    swap="scripts.peers.swap.e3nn",
    ways={"ours": {}},
    exclusions=EXCLUSIONS,
    # What e3nn's tests/conftest.py does, which is in another folder than the tests.
    arguments=("-p", "scripts.peers.swap.e3nn_fixtures"),
)
