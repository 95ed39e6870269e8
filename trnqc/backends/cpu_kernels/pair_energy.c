/* Second-order pair energies from a slab of integrals T_j[a,b] = (ia|jb), one i, several j.
 *
 *   os[j] = sum_ab T[a,b]^2 / D[a,b]           D[a,b] = e_pair[j] - e_vir[a] - e_vir[b]
 *   x[j]  = sum_ab T[a,b] T[b,a] / D[a,b]      (e_pair[j] = e_i + e_j; all energies in Hartree)
 *
 * D is symmetric, so the tiles (A,B) and (B,A) are visited together and two elements share one division:
 * with t = T[a,b] and u = T[b,a] they add (t^2 + u^2) / D to os and 2 t u / D to x.
 *
 * Compiled once with REAL = double and once with REAL = float; arithmetic and sums are in double in both. The order of
 * the sums depends on nvir alone. T_j[a,b] lies at t[j * pair_stride + a * row_stride + b].
 */
#include <stdint.h>

enum { TILE = 32 };

/* Adds one tile pair; `u` is T_BA already transposed. Sums run along b in TILE separate lanes, so that the inner loop
 * vectorises without reordering any addition. */
static inline void add_tile(int na, int nb, const REAL *restrict t, int64_t row_stride, double u[restrict TILE][TILE],
                            const double *restrict e_a, const double *restrict e_b, double e_pair, double both,
                            double *restrict os, double *restrict x)
{
    double os_lane[TILE] = {0}, x_lane[TILE] = {0};
    for (int a = 0; a < na; a++) {
        const double e = e_pair - e_a[a];
        for (int b = 0; b < nb; b++) {
            const double r = 1.0 / (e - e_b[b]), p = t[a * row_stride + b], q = u[a][b];
            os_lane[b] += (p * p + both * (q * q)) * r;
            x_lane[b] += p * q * r;
        }
    }
    double os_sum = 0, x_sum = 0;
    for (int b = 0; b < nb; b++) {
        os_sum += os_lane[b];
        x_sum += x_lane[b];
    }
    *os += os_sum;
    *x += (1 + both) * x_sum;
}

static inline void transpose(int na, int nb, const REAL *restrict t, int64_t row_stride, double u[restrict TILE][TILE])
{
    for (int b = 0; b < nb; b++)
        for (int a = 0; a < na; a++)
            u[a][b] = t[b * row_stride + a];
}

static void pair(const REAL *t, int64_t nvir, int64_t row_stride, const double *e_vir, double e_pair, double *os,
                 double *x)
{
    _Alignas(64) double u[TILE][TILE];
    *os = *x = 0;
    for (int64_t a = 0; a < nvir; a += TILE) {
        const int na = nvir - a < TILE ? (int)(nvir - a) : TILE;
        for (int64_t b = 0; b <= a; b += TILE) {
            const int nb = nvir - b < TILE ? (int)(nvir - b) : TILE;
            const REAL *ab = t + a * row_stride + b, *ba = t + b * row_stride + a;
            const double both = a == b ? 0.0 : 1.0; /* a diagonal tile is its own partner: counted once */
            if (na == TILE && nb == TILE) {         /* constant bounds, which the compiler unrolls */
                transpose(TILE, TILE, ba, row_stride, u);
                add_tile(TILE, TILE, ab, row_stride, u, e_vir + a, e_vir + b, e_pair, both, os, x);
            } else {
                transpose(na, nb, ba, row_stride, u);
                add_tile(na, nb, ab, row_stride, u, e_vir + a, e_vir + b, e_pair, both, os, x);
            }
        }
    }
}

void pair_energies(const REAL *t, int64_t npair, int64_t nvir, int64_t row_stride, int64_t pair_stride,
                   const double *e_vir, const double *e_pair, double *os, double *x)
{
    for (int64_t j = 0; j < npair; j++)
        pair(t + j * pair_stride, nvir, row_stride, e_vir, e_pair[j], os + j, x + j);
}
