"""Decompositions of sparse tensors, whose products with the tensor are plans of this room.

    tensor, ranks ─ start ─► factors ─ sweeps (plans of MTTKRP or TTMc, small dense equations) ─► model and its errors

`cp` has canonical polyadic decompositions, `tucker` the Tucker decomposition, `tensor_train` tensor trains. `start` has
the first factors, `sweeps` the loop with its stopping rule and restarts, `models` the results.
"""
