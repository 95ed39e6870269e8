"""Pair energies from factors.

pairs: all at once | block_loop: block by block | ranks: on several ranks -> accuracy: estimated error -> PairStep
"""
