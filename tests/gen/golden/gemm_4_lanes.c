#include <math.h>
#include <stdint.h>
#pragma GCC diagnostic ignored "-Wpsabi"
typedef double f64x4 __attribute__((vector_size(32)));
typedef double f64x4u __attribute__((vector_size(32), aligned(8), may_alias));
typedef float f32x4 __attribute__((vector_size(16)));
typedef float f32x4u __attribute__((vector_size(16), aligned(4), may_alias));
typedef int64_t i64x4 __attribute__((vector_size(32)));
typedef int64_t i64x4u __attribute__((vector_size(32), aligned(8), may_alias));
typedef int32_t i32x4 __attribute__((vector_size(16)));
typedef int32_t i32x4u __attribute__((vector_size(16), aligned(4), may_alias));
static inline f64x4 all_f64x4(double x) { return x - (f64x4){0}; }

// c = a b
void gemm(int64_t m, int64_t n, int64_t q, const double *restrict a, const f64x4u *restrict b, f64x4u *restrict c) {
    // one element after the other
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            f64x4 total = all_f64x4(0.0);
            for (int64_t k = 0; k < q; k++) {
                total = a[i * q + k] * b[k * n + j] + total;
            }
            c[i * n + j] = total;
        }
    }
}
