"""Plans on ranks: each processor of a grid holds a block of every array, and what moves between steps is sent.

Distribution, DTensors -> distributed: checked -> rank_run: products of blocks, messages -> DTensors
"""
