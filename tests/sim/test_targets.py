"""Generations, their constants, and the switch between them."""

import pytest

from trnqc.errors import SimulationError
from trnqc.sim.machine.targets import target_from_environment
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl


@pytest.mark.parametrize(
    ("name", "target", "version"),
    [
        ("trn1", "trn1", nisa.nc_version.gen2),
        ("inf2", "trn1", nisa.nc_version.gen2),
        ("gen2", "trn1", nisa.nc_version.gen2),
        ("trn2", "trn2", nisa.nc_version.gen3),
        ("gen3", "trn2", nisa.nc_version.gen3),
        ("trn3", "trn3", nisa.nc_version.gen4),
        ("gen4", "trn3", nisa.nc_version.gen4),
        ("", "trn2", nisa.nc_version.gen3),
    ],
)
def test_switch(monkeypatch, name, target, version):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", name)
    assert target_from_environment().name == target
    assert nisa.get_nc_version() is version
    assert nisa.get_nc_sub_version() == 0


def test_generations_are_ordered():
    versions = nisa.nc_version
    assert versions.gen2 < versions.gen3 <= versions.gen3 < versions.gen4
    assert versions.gen4 >= versions.gen3


def test_unset_is_trn2(monkeypatch):
    monkeypatch.delenv("NEURON_PLATFORM_TARGET_OVERRIDE", raising=False)
    assert target_from_environment().name == "trn2"


def test_unknown_target(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn9")
    with pytest.raises(SimulationError, match=r"must be one of .*trn1.*, got 'trn9'"):
        target_from_environment()


@pytest.mark.parametrize(("name", "usable", "physical"), [("trn1", 176, 192), ("trn2", 208, 224), ("trn3", 240, 256)])
def test_tile_size(monkeypatch, name, usable, physical):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", name)
    size = nl.tile_size
    assert (size.pmax, size.psum_bank_fmax, size.psum_fmax, size.psum_bank_fmax_bytes) == (128, 512, 512, 2048)
    assert (size.gemm_stationary_fmax, size.gemm_moving_fmax, size.bn_stats_fmax) == (128, 512, 512)
    assert size.sbuf_fmax_bytes == size.total_available_sbuf_size == 4 * size.sbuf_fmax == usable * 1024
    assert size.sbuf_size_bytes == 128 * physical * 1024


@pytest.mark.parametrize(("name", "banks"), [("trn1", 8), ("trn2", 7), ("trn3", 7)])
def test_a_bank_is_reserved_for_transposes_on_request(monkeypatch, name, banks):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", name)
    assert nl.tile_size.psum_num_banks == 8
    monkeypatch.setenv("NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE", "true")
    assert nl.tile_size.psum_num_banks == banks
