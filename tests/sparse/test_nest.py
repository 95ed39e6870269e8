"""Networks from subscripts, and the rules of a nest."""

from dataclasses import replace

import pytest

from trnqc.errors import ExpressionError, ProgramError
from trnqc.sparse.network.nest import Assignment, Format, Nest, Workspace
from trnqc.sparse.network.network import network

# T(K i n) = I(K m n) C(m i), E(K i u) = T P(n u): K and i around both, T needed over n alone.
DLPNO = network("Kmn,mi,nu->Kiu", [(7, 5, 5), (5, 3), (5, 4)])
NEST = Nest(
    DLPNO,
    (Assignment(3, (0, 1), tuple("Kimn")), Assignment(4, (3, 2), tuple("Kinu"))),
    (2,),
    (
        Format(tuple("Kmn"), ("dense", "compressed", "compressed")),
        Format(tuple("im"), ("dense", "compressed")),
        Format(tuple("nu"), ("dense", "dense")),
        Format(tuple("Kiu"), ("dense", "dense", "dense")),
    ),
    (Workspace(("n",)),),
)


def test_network():
    assert DLPNO.extents == {"K": 7, "m": 5, "n": 5, "i": 3, "u": 4}
    assert DLPNO.summed == ("m", "n") and str(DLPNO) == "Kmn,mi,nu->Kiu"
    assert network("ij,jk", [(2, 3), (3, 4)]).output == ("i", "k")


@pytest.mark.parametrize(
    ("subscripts", "shapes", "message"),
    [
        ("ij,jk->ik->i", [(2, 3), (3, 4)], "one arrow"),
        ("ij,jk->ik", [(2, 3)], "for 2 operands; found 1"),
        ("ii->i", [(2, 2)], "index i occurs twice in operand 0"),
        ("ij->i", [(2, 2, 2)], "the subscripts name 2 axes; operand 0 has 3"),
        ("ij,jk->ik", [(2, 3), (4, 5)], "index j has extent 4 in operand 1, and 3 in operand 0"),
        ("ij,jk->ik", [(2, 3), (1, 5)], "index j has extent 1 in operand 1"),
        ("ij->ik", [(2, 3)], "index k of the result occurs in no operand"),
        ("...i->i", [(2, 3)], "operand 0 has an ellipsis"),
        ("i1->i", [(2, 3)], "an index is a letter; found '1'"),
    ],
)
def test_subscripts_refused(subscripts, shapes, message):
    with pytest.raises(ExpressionError, match=message):
        network(subscripts, shapes)


def test_nest():
    assert NEST.check() is NEST
    assert NEST.indices[3] == tuple("Kin") and NEST.fused(3) == 2 and NEST.order == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shared": (3,)}, "must be equal to be shared"),
        ({"shared": (1,)}, "a workspace over"),
        ({"workspaces": (Workspace(()),)}, "a workspace over"),
        ({"assignments": (Assignment(3, (0, 1), tuple("Kim")), NEST.assignments[1])}, "loops over"),
        ({"assignments": (Assignment(3, (0, 0), tuple("Kimn")), NEST.assignments[1])}, "read once"),
        (
            {"formats": (*NEST.formats[:3], Format(tuple("Ki"), ("dense", "dense")))},
            "the format of tensor . must have the indices",
        ),
        ({"shared": ()}, "every assignment but the last"),
    ],
)
def test_nests_refused(change, message):
    with pytest.raises(ProgramError, match=message):
        replace(NEST, **change).check()
