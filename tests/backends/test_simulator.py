"""The simulator backend meets the contract of all backends."""

from tests.backends.fitted_contract import FittedContract
from tests.backends.gamma_contract import GammaContract
from trnqc.backends.simulator.backend import Simulator


class TestSimulator(GammaContract, FittedContract):
    backend = Simulator()
