"""NVIDIA's Python packages on a machine without a GPU, on a stand-in for the driver.

libcuda.cpp   the driver's functions: memory, streams that run late, launches, graphs
libcublas.cpp the two products of cuBLAS that are called
hook.py       cubins of NVRTC -> the same text by `trnqc.jit.emulator`; faults -> errors
__main__.py   a command in a process whose driver is the stand-in

    python -m scripts.device.driver -m pytest tests/jit/test_device.py tests/cg/test_gpu.py

needs cuda-core, cuda-bindings, NVRTC and, for MP2, nvmath-python (``pip install 'trnqc[cuda]'``). cuda-core packs the
arguments, NVRTC compiles the text, and what would corrupt the memory of a GPU is an error.
"""
