# An image without a C compiler: it runs the compiled kernels of the wheel, and leaves what the wheel lacks to PySCF, NumPy
# and SciPy. Put a wheel of `python -m scripts.release.wheel` into dist first:
#
#     docker build -t trnqc . && docker run --rm trnqc mp2 benzene --basis cc-pvdz
FROM python:3.12-slim
COPY dist/*-manylinux*.whl /tmp/wheel/
RUN pip install --no-cache-dir /tmp/wheel/*.whl && rm -r /tmp/wheel
# Nothing needs the rights of root. Kernels that are compiled where a compiler is added lie in the home folder.
RUN useradd --create-home chemist
USER chemist
WORKDIR /home/chemist
ENTRYPOINT ["trnqc"]
CMD ["doctor"]
