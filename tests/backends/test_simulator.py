"""The simulator backend meets the contract of all backends."""

from tests.backends.contract import BackendContract
from trnqc.backends.simulator.backend import Simulator


class TestSimulator(BackendContract):
    backend = Simulator()
