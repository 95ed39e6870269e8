"""Index notation of nests: shared loops, siblings, chains, sequences, the copy that orders a sparse result."""

from dataclasses import replace

from tests.sparse.test_nest import NEST
from trnqc.sparse.network.nest import Format
from trnqc.sparse.network.network import network
from trnqc.sparse.network.notation import notation
from trnqc.sparse.search.named_nests import fused, nary

FOUR = network("ipq,jpr,kqr,jkr->i", [(4, 5, 6), (3, 5, 7), (2, 6, 7), (3, 2, 7)])


def test_producer_and_consumer():
    assert str(notation(NEST)) == (
        "forall(K, forall(i, where(forall(n, forall(u, R(K,i,u) += X0(n) * C(n,u))), "
        "forall(m, forall(n, X0(n) += A(K,m,n) * B(i,m))))))"
    )


def test_siblings_stand_on_the_left():
    nest = fused(FOUR, ((0, 1), (2, 3)), ["rjqip", "rjqk", "rjqi"], sparse=False)
    assert str(notation(nest)) == (
        "forall(r, forall(j, forall(q, where(where(forall(i, R(i) += X0(i) * X1()), "
        "forall(k, X1() += C(r,q,k) * D(r,j,k))), forall(i, forall(p, X0(i) += A(q,i,p) * B(r,j,p)))))))"
    )


def test_what_is_not_shared_is_a_sequence():
    nest = fused(network("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]), ((0, 1), 2), ["ijk", "kil"], sparse=False)
    assert str(notation(nest)) == (
        "sequence(forall(i, forall(j, forall(k, X0(k,i) += A(i,j) * B(j,k)))), "
        "forall(k, forall(i, forall(l, R(i,l) += X0(k,i) * C(k,l)))))"
    )


def test_a_sparse_result_out_of_order_is_copied():
    nest = replace(nary(network("ij,jk->ik", [(2, 3), (3, 4)]), ("i", "j", "k")))
    nest = replace(nest, formats=(*nest.formats[:2], Format(("i", "k"), ("dense", "compressed"))))
    assert str(notation(nest)) == (
        "forall(i, where(forall(k, R(i,k) = X0(k)), forall(j, forall(k, X0(k) += A(i,j) * B(j,k)))))"
    )
