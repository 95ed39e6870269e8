from dataclasses import dataclass

import pytest

from trnqc.sim.nki import language as nl


def test_keywords_become_attributes():
    class Section(nl.NKIObject):
        pass

    assert vars(Section(rows=3, name="a")) == {"rows": 3, "name": "a"}


def test_a_dataclass_of_plain_defaults_takes_them_as_fields():
    @dataclass
    class Section(nl.NKIObject):
        index = None
        size = 4

    section = Section(index=2)
    assert (section.index, section.size) == (2, 4)
    with pytest.raises(TypeError, match="unexpected keyword argument 'length'"):
        Section(length=1)


def test_annotated_fields_are_the_fields():
    @dataclass
    class Section(nl.NKIObject):
        index: int
        limit = 8

    assert Section(3).index == 3 and Section.limit == 8
    with pytest.raises(TypeError):
        Section(3, limit=9)
