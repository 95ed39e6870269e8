"""Our kernels need no more registers at a time than the sequencer of an engine has."""

from __future__ import annotations

from collections import Counter

import pytest

from scripts.model import mp2
from trnqc.sim.machine import machine
from trnqc.sim.memory.registers import VirtualRegister

# Registers of 32 bits of each engine's sequencer, NeuronCore-v2 to v4 (documentation of nisa.register_alloc).
SEQUENCER = 64


@pytest.fixture
def allocated(monkeypatch):
    """Registers by the pass of the device loop in which they are allocated, () outside of loops."""
    counts: Counter = Counter()
    create = VirtualRegister.__init__

    def counted(self, *arguments, **options):
        create(self, *arguments, **options)
        counts[machine.running().loop_path] += 1

    monkeypatch.setattr(VirtualRegister, "__init__", counted)
    return counts


@pytest.mark.parametrize("model", [mp2.pair_energies, mp2.gamma])
@pytest.mark.parametrize("shape", ["small", "medium"])
def test_registers_of_a_pass_fit_without_reuse(allocated, model, shape):
    model(shape, "trn1", "fp32")
    assert 4 <= max(count for path, count in allocated.items() if path) <= SEQUENCER
