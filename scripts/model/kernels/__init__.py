"""Kernels whose times on a device are published, written afresh for calibrating and for comparing with the timeline."""
