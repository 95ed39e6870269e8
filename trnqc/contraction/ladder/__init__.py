"""Particle-particle ladders, whose four-index integrals are computed tile by tile and never stored whole.

tree ─ pattern ─► Ladder ─ loops ─► LadderLoops, tiles ─ run, integrals ─► array
"""
