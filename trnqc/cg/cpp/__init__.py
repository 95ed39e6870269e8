"""What the operators in C++ share: the order of edges, and the calls of kernels."""

from pathlib import Path

SHARED = Path(__file__).parent
