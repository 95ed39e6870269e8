"""Imported by Python at its start, where this folder is on the path: kernels of the stand-in driver are emulated."""

import scripts.device.driver.hook  # noqa: F401
