/* Second-order pair energies from a slab of integrals T_j[a,b] = (ia|jb), one i, several j <= i.
 *
 *   os[j] = sum_ab T[a,b]^2 / D[a,b]           D[a,b] = e_pair[j] - e_vir[a] - e_vir[b]
 *   x[j]  = sum_ab T[a,b] T[b,a] / D[a,b]      (e_pair[j] = e_i + e_j; all energies in Hartree)
 *
 * D is symmetric, so the tiles (A,B) and (B,A) are visited together and two elements share one division:
 * with t = T[a,b] and u = T[b,a] they add (t^2 + u^2) / D to os and 2 t u / D to x.
 *
 * REAL is double or float; arithmetic and sums are in double. The order of the sums depends on nvir alone.
 * T_j[a,b] lies at t[a * stride + column + j * nvir + b]. Of a symmetric T_j (i = j) only the lower half is read, in
 * tiles counted from its first element.
 *
 * pair_amplitudes.c, which is compiled together with this file, also lets the pass store weighted amplitudes
 * W[a,b] = (direct T[a,b] - exchange T[b,a]) / D[a,b] and sum W t with t = T / D. The functions of one pair are inlined
 * everywhere, so that nothing of this remains in the functions that compute energies alone.
 */
#include <stdint.h>

enum { TILE = 32, LANES = 8 };

#define INLINE static inline __attribute__((always_inline))

/* The weights of the amplitudes, and where they are stored: element [a,b] at out[a * stride + b]; no place, no stores.
 * The sum of W t is added to `norm`. `share` times its sums over single rows are added to rows[a], in LANES parts, and
 * those over single columns to columns[b]. */
struct weighted {
    double direct, exchange, *out;
    int64_t stride;
    double share, *rows, *columns, *norm;
};

/* The sum of TILE lanes, which are overwritten. */
INLINE double total(double *lane)
{
    for (int half = TILE / 2; half > 0; half /= 2)
        for (int q = 0; q < half; q++)
            lane[q] += lane[q + half];
    return lane[0];
}

/* Adds one tile pair, whose first rows are `at_a` and `at_b`; `u` is T_BA already transposed. Sums run along b in TILE
 * separate lanes, so that the inner loop vectorises without reordering any addition. */
INLINE void add_tile(int na, int nb, const REAL *restrict t, int64_t stride, double u[restrict TILE][TILE],
                     const double *restrict e_a, const double *restrict e_b, double e_pair, double both,
                     double *restrict os, double *restrict x, struct weighted w, int64_t at_a, int64_t at_b)
{
    double os_lane[TILE] = {0}, x_lane[TILE] = {0}, columns[TILE] = {0};
    double *restrict ab = w.out + at_a * w.stride + at_b, *restrict ba = w.out + at_b * w.stride + at_a;
    for (int a = 0; a < na; a++) {
        const double e = e_pair - e_a[a];
        double row[TILE] = {0};
        for (int b = 0; b < nb; b++) {
            const double r = 1.0 / (e - e_b[b]), p = t[a * stride + b], q = u[a][b];
            os_lane[b] += (p * p + both * (q * q)) * r;
            x_lane[b] += p * q * r;
            if (w.out) {
                const double v = (w.direct * p - w.exchange * q) * r, z = (w.direct * q - w.exchange * p) * r;
                ab[a * w.stride + b] = v;
                u[a][b] = z;
                row[b] = w.share * (v * p + both * (z * q)) * r;
            }
        }
        if (w.out)
            for (int b = 0; b < TILE; b += LANES)
                for (int q = 0; q < LANES; q++) {
                    w.rows[(at_a + a) * LANES + q] += row[b + q];
                    columns[b + q] += row[b + q];
                }
    }
    if (w.out) {
        for (int b = 0; b < nb; b++) {
            w.columns[at_b + b] += columns[b];
            for (int a = 0; a < na && both != 0; a++)
                ba[b * w.stride + a] = u[a][b];
        }
        *w.norm += total(columns) / w.share;
    }
    double os_sum = 0, x_sum = 0;
    for (int b = 0; b < nb; b++) {
        os_sum += os_lane[b];
        x_sum += x_lane[b];
    }
    *os += os_sum;
    *x += (1 + both) * x_sum;
}

static inline void transpose(int na, int nb, const REAL *restrict t, int64_t stride, double u[restrict TILE][TILE])
{
    for (int b = 0; b < nb; b++)
        for (int a = 0; a < na; a++)
            u[a][b] = t[b * stride + a];
}

static inline void copy(int na, int nb, const REAL *restrict t, int64_t stride, double u[restrict TILE][TILE])
{
    for (int a = 0; a < na; a++)
        for (int b = 0; b < nb; b++)
            u[a][b] = t[a * stride + b];
}

INLINE void pair(const REAL *t, int64_t nvir, int64_t stride, const double *e_vir, double e_pair, int symmetric,
                 double *os, double *x, struct weighted w)
{
    _Alignas(64) double u[TILE][TILE];
    *os = *x = 0;
    for (int64_t a = 0; a < nvir; a += TILE) {
        const int na = nvir - a < TILE ? (int)(nvir - a) : TILE;
        for (int64_t b = 0; b <= a; b += TILE) {
            const REAL *ab = t + a * stride + b, *ba = t + b * stride + a;
            const double both = a == b ? 0.0 : 1.0; /* a diagonal tile is its own partner: counted once */
            const int nb = a == b ? na : TILE;
            if (symmetric && a != b)
                copy(na, nb, ab, stride, u);
            else if (na == TILE) /* constant bounds, which the compiler unrolls */
                transpose(TILE, TILE, ba, stride, u);
            else
                transpose(na, nb, ba, stride, u);
            if (na == TILE)
                add_tile(TILE, TILE, ab, stride, u, e_vir + a, e_vir + b, e_pair, both, os, x, w, a, b);
            else
                add_tile(na, nb, ab, stride, u, e_vir + a, e_vir + b, e_pair, both, os, x, w, a, b);
        }
    }
}

/* The sum of a row of T over b of T[a,b]^2 / D[a,b] with D[a,b] = e - e_column[b]; T is rectangular. The sums of
 * W t belong to the amplitudes, which are stored if there is a place `out` for them. */
INLINE double opposite_spin_row(const REAL *restrict row, int64_t columns, double e, const double *restrict e_column,
                                double direct, double *restrict out, double *restrict sums, double *norm)
{
    double lane[TILE] = {0}, square[TILE] = {0}, sum = 0;
    int64_t b = 0;
    for (; b + TILE <= columns; b += TILE)
        for (int q = 0; q < TILE; q++) {
            const double p = row[b + q], t = p / (e - e_column[b + q]);
            lane[q] += p * t;
            if (out) {
                out[b + q] = direct * t;
                sums[b + q] += direct * t * t;
                square[q] += direct * t * t;
            }
        }
    for (int q = 0; b + q < columns; q++) {
        const double p = row[b + q], t = p / (e - e_column[b + q]);
        lane[q] += p * t;
        if (out) {
            out[b + q] = direct * t;
            sums[b + q] += direct * t * t;
            square[q] += direct * t * t;
        }
    }
    for (int q = 0; q < TILE; q++)
        sum += lane[q];
    if (out)
        *norm = total(square);
    return sum;
}

/* os[j] = sum_ab T[a,b]^2 / D[a,b] with D[a,b] = e_pair[j] - e_row[a] - e_column[b], for rectangular T_j. */
void opposite_spin_energies(const REAL *t, int64_t pairs, int64_t rows, int64_t columns, int64_t stride,
                            int64_t column, const double *e_row, const double *e_column, const double *e_pair,
                            double *os)
{
    for (int64_t j = 0; j < pairs; j++) {
        os[j] = 0;
        for (int64_t a = 0; a < rows; a++)
            os[j] += opposite_spin_row(t + a * stride + column + j * columns, columns, e_pair[j] - e_row[a], e_column,
                                       0, 0, 0, 0);
    }
}

/* The sums of `pairs` pairs; the last of them is symmetric if `symmetric` is not zero. */
void pair_energies(const REAL *t, int64_t pairs, int64_t nvir, int64_t stride, int64_t column, int64_t symmetric,
                   const double *e_vir, const double *e_pair, double *os, double *x)
{
    for (int64_t j = 0; j < pairs; j++)
        pair(t + column + j * nvir, nvir, stride, e_vir, e_pair[j], symmetric && j == pairs - 1, os + j, x + j,
             (struct weighted){0});
}
