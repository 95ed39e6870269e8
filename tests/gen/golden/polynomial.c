#include <math.h>
#include <stdint.h>

void polynomial(int64_t n, const double *restrict x, double *restrict y, double *restrict z, int64_t groups_begin, int64_t groups_end) {
    for (int64_t group = groups_begin; group < groups_end; group++) {
        for (int64_t i = 0; i < n; i++) {
            double p = ((2.0 * x[group * n + i] + 0.25) * x[group * n + i] + -0.5) * x[group * n + i] + 1.0;
            y[group * n + i] = p;
            z[group * n + i] = p * p;
        }
    }
}
