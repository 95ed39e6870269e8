"""`trnqc tune` on the command line."""

import argparse
import importlib.util

import pytest

from autotune import command
from autotune.command import MOST, duration, parse_budget
from trnqc import cli
from trnqc.errors import InputError
from trnqc.tuning.requests import parse_shape


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "300")
    return tmp_path


@pytest.mark.parametrize(
    "text", ["5,448,1536", "nocc=5,nvir=448,naux=1536", "naux=1536,nvir=448,nocc=5", "5x448x1536", "5 448 1536"]
)
def test_shapes_are_read(text):
    assert parse_shape("mp2_energy", text) == {"nocc": 5, "nvir": 448, "naux": 1536}


@pytest.mark.parametrize(
    "text", ["", "448", "1,2", "nvir=448", "a=1,b=2,c=3", "nocc=1,nvir=0,naux=1", "1,-1,2", "nvir=1,2,3"]
)
def test_other_shapes_are_refused(text):
    with pytest.raises(InputError, match="a shape of mp2_energy is nocc=N,nvir=N,naux=N with N >= 1"):
        parse_shape("mp2_energy", text)


@pytest.mark.parametrize(
    "text, budget", [("40", (40, None)), ("90s", (MOST, 90.0)), ("10m", (MOST, 600.0)), ("1h", (MOST, 3600.0))]
)
def test_budgets_are_read(text, budget):
    assert parse_budget(text) == budget


@pytest.mark.parametrize("text", ["0", "", "ten", "5d", "-3", "1.5m"])
def test_other_budgets_are_refused(text):
    with pytest.raises(InputError, match="a budget is a number of candidates or a time"):
        parse_budget(text)


@pytest.mark.parametrize("ns, text", [(12.0, "12 ns"), (1500.0, "1.5 us"), (2.5e6, "2.5 ms"), (3e9, "3 s"), (0.0, "-")])
def test_durations_are_readable(ns, text):
    assert duration(ns) == text


def test_a_modelled_run_ends_in_a_record_that_is_listed(own_cache, capsys):
    words = ["tune", "gemm", "--shape", "M=130,N=100,K=200", "--target", "trn1", "--budget", "2", "--search", "halving"]
    assert cli.main(words) == 0
    shown = capsys.readouterr().out
    assert "search    halving: asked for; seed 0" in shown and "modelled time of one product" in shown
    stored = list((own_cache / "tuning" / "records").glob("gemm-trn1-fp32-M130-N100-K200-modelled-*.json"))
    assert len(stored) == 1
    assert cli.main(["tune", "--list"]) == 0
    shown = capsys.readouterr().out
    assert "M 130, N 100, K 200" in shown and "in use" in shown


def test_the_extra_that_installs_optuna_is_named(own_cache, capsys, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "optuna" else find(name))
    assert cli.main(["tune", "gemm", "--shape", "M=130,N=100,K=200", "--target", "trn1", "--budget", "2"]) == 0
    assert "pip install 'trnqc[tune]'" in capsys.readouterr().out


def test_a_record_of_another_source_is_called_stale(own_cache, capsys):
    from tests.tuning.test_records import record
    from trnqc.tuning import records

    records.store(record())
    assert cli.main(["tune", "gemm", "--list"]) == 0
    assert "stale: the kernel has changed" in capsys.readouterr().out


def test_what_is_missing_is_said(capsys):
    assert cli.main(["tune", "gemm"]) == 2
    assert "trnqc tune needs KERNEL and --shape, or --list" in capsys.readouterr().err


def test_help_names_the_extents_of_every_kernel(capsys):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    assert "mp2_energy: nocc=...,nvir=...,naux=..." in parser.format_help().replace("\n", " ").replace("  ", "")


def test_a_device_that_is_not_there_is_said(capsys, monkeypatch):
    monkeypatch.setattr("trnqc.backends.neuron.packages.device_files", lambda: ())
    assert cli.main(["tune", "gemm", "--shape", "8,8,8", "--instrument", "device", "--budget", "1"]) == 2
    assert "backend 'neuron' cannot run here: no /dev/neuron* device" in capsys.readouterr().err
