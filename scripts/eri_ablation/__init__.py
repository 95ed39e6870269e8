"""Ablation of the integral generator: graphs, phase 2, CUDA registers and CPU throughput, and published figures."""
