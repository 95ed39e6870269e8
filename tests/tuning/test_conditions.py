"""The conditions under which a measurement is valid."""

import pytest

from trnqc.tuning import conditions
from trnqc.tuning.conditions import chip_target, device_identity, machine_target, model_identity


@pytest.mark.parametrize(
    "name, target",
    [("trn1.32xlarge\n", "trn1"), ("inf2.xlarge", "trn1"), ("trn2.48xlarge", "trn2"), ("c7i.large", None), ("", None)],
)
def test_the_instance_type_tells_the_generation(tmp_path, name, target):
    (tmp_path / "product_name").write_text(name)
    assert chip_target(tmp_path / "product_name") == target
    assert chip_target(tmp_path / "absent") is None


def test_the_override_goes_before_the_machine(tmp_path, monkeypatch):
    (tmp_path / "product_name").write_text("trn1.2xlarge")
    monkeypatch.setattr(conditions, "PRODUCT", tmp_path / "product_name")
    monkeypatch.delenv("NEURON_PLATFORM_TARGET_OVERRIDE", raising=False)
    assert machine_target() == "trn1"
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "gen3")
    assert machine_target() == "trn2"


def test_flags_and_versions_are_part_of_a_devices_identity(monkeypatch):
    monkeypatch.setenv("NEURON_CC_FLAGS", "-O1")
    result = device_identity()
    assert result["NEURON_CC_FLAGS"] == "-O1" and set(result) == {*conditions.PACKAGES, *conditions.FLAGS}


def test_the_model_is_known_by_its_source(tmp_path, monkeypatch):
    before = model_identity()
    assert before == model_identity()
    (tmp_path / "timeline").mkdir()
    for name in ("timeline.py", "costs.py"):
        (tmp_path / "timeline" / name).write_text("RATE = 1")
    monkeypatch.setattr(conditions.sim, "__file__", str(tmp_path / "__init__.py"))
    other = model_identity()
    (tmp_path / "timeline" / "costs.py").write_text("RATE = 2")
    assert len({before["model"], other["model"], model_identity()["model"]}) == 3
