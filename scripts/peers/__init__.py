"""Tests of other packages with our objects in place of theirs, one module per package: ``python -m scripts.peers``."""
