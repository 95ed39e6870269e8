"""Peers' test files, run with our objects in the place of theirs: one module a peer (`scripts/peers_tests.py`)."""
