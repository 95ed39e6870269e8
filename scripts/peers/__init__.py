"""Peers' own tests with our objects in the place of theirs, one module per peer: ``python -m scripts.peers``."""
