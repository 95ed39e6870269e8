// A stand-in for libcublas.so.13: products of matrices in the order of Fortran, at addresses, on a stream of libcuda.cpp.
#include <cstdint>
#include <cstdio>
#include <cstring>

extern "C" {
void standin_queue(void *stream, void (*work)(void *), void *data);
void standin_require(const void *p, size_t bytes, const char *what);
}
#define API extern "C" int
// cublasStatus_t, cudaDataType and cublasComputeType_t of NVIDIA's headers.
enum { SUCCESS = 0, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
enum { R_32F = 0, R_64F = 1, R_16BF = 14, COMPUTE_32F = 68, COMPUTE_64F = 70 };

namespace {

struct Handle {
    void *stream;
};

struct Matrix {
    const void *at;
    int type, leading;
    long long step;
};

struct Product {
    bool transposed_a, transposed_b;
    int m, n, k, count;
    double alpha, beta;
    Matrix a, b, c;
};

int bytes_of(int type) { return type == R_64F ? 8 : type == R_32F ? 4 : 2; }

double element(const Matrix &x, long long row, long long column, long long matrix) {
    long long n = matrix * x.step + column * x.leading + row;
    if (x.type == R_64F) return ((const double *)x.at)[n];
    if (x.type == R_32F) return ((const float *)x.at)[n];
    // A bf16 number is the upper half of the bits of a float.
    uint32_t bits = uint32_t(((const uint16_t *)x.at)[n]) << 16;
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

void require(const Matrix &x, int rows, int columns, int count, const char *what) {
    long long elements = (count - 1) * x.step + (columns - 1LL) * x.leading + rows;
    standin_require(x.at, elements * bytes_of(x.type), what);
}

void multiply(void *data) {
    Product p = *(Product *)data;
    delete (Product *)data;
    require(p.a, p.transposed_a ? p.k : p.m, p.transposed_a ? p.m : p.k, p.count, "cuBLAS, a");
    require(p.b, p.transposed_b ? p.n : p.k, p.transposed_b ? p.k : p.n, p.count, "cuBLAS, b");
    require(p.c, p.m, p.n, p.count, "cuBLAS, c");
    for (long long z = 0; z < p.count; z++)
        for (int j = 0; j < p.n; j++)
            for (int i = 0; i < p.m; i++) {
                double sum = 0;
                for (int l = 0; l < p.k; l++) {
                    double a = p.transposed_a ? element(p.a, l, i, z) : element(p.a, i, l, z);
                    double b = p.transposed_b ? element(p.b, j, l, z) : element(p.b, l, j, z);
                    sum += a * b;
                }
                double value = p.alpha * sum + (p.beta ? p.beta * element(p.c, i, j, z) : 0);
                long long n = z * p.c.step + (long long)j * p.c.leading + i;
                if (p.c.type == R_64F) ((double *)p.c.at)[n] = value;
                else ((float *)p.c.at)[n] = (float)value;
            }
}

int start(void *handle, Product p, int compute) {
    bool known = (p.a.type == R_64F && p.b.type == R_64F && p.c.type == R_64F && compute == COMPUTE_64F) ||
                 (p.a.type == p.b.type && (p.a.type == R_32F || p.a.type == R_16BF) && p.c.type == R_32F && compute == COMPUTE_32F);
    if (!known) return NOT_SUPPORTED;
    if (p.a.leading < (p.transposed_a ? p.k : p.m) || p.b.leading < (p.transposed_b ? p.n : p.k) || p.c.leading < p.m) return INVALID_VALUE;
    standin_queue(((Handle *)handle)->stream, multiply, new Product(p));
    return SUCCESS;
}

double scalar(const void *p, int compute) { return compute == COMPUTE_64F ? *(const double *)p : *(const float *)p; }

} // namespace

API cublasCreate_v2(void **out) { return *out = new Handle{nullptr}, SUCCESS; }
API cublasDestroy_v2(void *handle) { return delete (Handle *)handle, SUCCESS; }
API cublasSetStream_v2(void *handle, void *stream) { return ((Handle *)handle)->stream = stream, SUCCESS; }
API cublasGetStream_v2(void *handle, void **stream) { return *stream = ((Handle *)handle)->stream, SUCCESS; }
API cublasGetVersion_v2(void *, int *version) { return *version = 130000, SUCCESS; }
API cublasSetMathMode(void *, int) { return SUCCESS; }
API cublasGemmEx(void *handle, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int at, int lda, const void *b,
                 int bt, int ldb, const void *beta, void *c, int ct, int ldc, int compute, int) {
    return start(handle, {ta != 0, tb != 0, m, n, k, 1, scalar(alpha, compute), scalar(beta, compute), {a, at, lda, 0}, {b, bt, ldb, 0}, {c, ct, ldc, 0}}, compute);
}
API cublasGemmStridedBatchedEx(void *handle, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int at, int lda,
                               long long sa, const void *b, int bt, int ldb, long long sb, const void *beta, void *c, int ct, int ldc,
                               long long sc, int count, int compute, int) {
    return start(handle, {ta != 0, tb != 0, m, n, k, count, scalar(alpha, compute), scalar(beta, compute), {a, at, lda, sa}, {b, bt, ldb, sb}, {c, ct, ldc, sc}}, compute);
}
