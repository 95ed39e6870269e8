/* Weighted amplitudes of pairs, and the sums of their products that one-particle densities need. This text is compiled
 * after pair_energy.c, whose tiles it uses.
 *
 *   W_j[a,b] = (direct K_j[a,b] - exchange K_j[b,a]) / D[a,b]        K_j[a,b] = (ia|jb), D as in pair_energy.c
 *
 * W_j[a,b] lies at w[first + a * stride + j * columns + b].
 */

/* Amplitudes and sums of pairs of the same spin: os and x of `pair_energies`, norm[j] = sum_ab W t with t = K / D, and
 *
 *   columns[a] += sum_jc W[a,c] t[a,c] + W[c,a] t[c,a]        once, not twice, for a symmetric pair (i = j)
 *
 * `rows` holds nvir * LANES numbers for parts of these sums, which are zero at first. */
void amplitudes(const double *k, int64_t pairs, int64_t nvir, int64_t k_stride, int64_t column, int64_t symmetric,
                const double *e_vir, const double *e_pair, double direct, double exchange, double *os, double *x,
                double *norm, double *rows, double *columns, double *w, int64_t first, int64_t stride)
{
    for (int64_t j = 0; j < pairs; j++) {
        const int one = symmetric && j == pairs - 1;
        const struct weighted to = {.direct = direct, .exchange = exchange, .out = w + first + j * nvir, .stride = stride,
                                    .share = one ? 0.5 : 1.0, .rows = rows, .columns = columns, .norm = norm + j};
        norm[j] = 0;
        pair(k + column + j * nvir, nvir, k_stride, e_vir, e_pair[j], one, os + j, x + j, to);
    }
    for (int64_t a = 0; a < nvir; a++)
        for (int q = 0; q < LANES; q++)
            columns[a] += rows[a * LANES + q];
}

/* Amplitudes and sums of pairs of opposite spin: os of `opposite_spin_energies`, norm[j] = sum_ab W t, and
 *
 *   left[a] += sum_jb W[a,b] t[a,b]        right[b] += sum_ja W[a,b] t[a,b] */
void opposite_spin_amplitudes(const double *k, int64_t pairs, int64_t rows, int64_t columns, int64_t k_stride,
                              int64_t column, const double *e_row, const double *e_column, const double *e_pair,
                              double direct, double *os, double *norm, double *left, double *right, double *w,
                              int64_t first, int64_t stride)
{
    for (int64_t j = 0; j < pairs; j++) {
        os[j] = norm[j] = 0;
        for (int64_t a = 0; a < rows; a++) {
            double of_row = 0;
            os[j] += opposite_spin_row(k + a * k_stride + column + j * columns, columns, e_pair[j] - e_row[a],
                                       e_column, direct, w + first + a * stride + j * columns, right, &of_row);
            left[a] += of_row;
            norm[j] += of_row;
        }
    }
}

/* Adds x[n] y[n] to TILE lanes, so that loops vectorise without reordering any addition. */
INLINE void add_products(double *restrict lane, const double *restrict x, const double *restrict y, int64_t length)
{
    int64_t n = 0;
    for (; n + TILE <= length; n += TILE)
        for (int q = 0; q < TILE; q++)
            lane[q] += x[n + q] * y[n + q];
    for (int q = 0; n + q < length; q++)
        lane[q] += x[n + q] * y[n + q];
}

static double dot(const double *x, const double *y, int64_t length)
{
    double lane[TILE] = {0};
    add_products(lane, x, y, length);
    return total(lane);
}

/* Adds to sums[n] the rows of W_j for the element (a, b) = elements[n], for all j:
 *
 *   left[n]  += sum_c W[a,c] (same W[b,c] + swapped W[c,b])
 *   right[n] += sum_c W[c,a] (same W[c,b] + swapped W[b,c])
 *
 * W is rectangular if `swapped` is 0, else square, and both lists of elements are the same. If `symmetric` is not zero,
 * the last pair is one of i = j and is left out of `right`. `transposed` lists the orbitals of `right_elements`, whose
 * columns of W_j are copied to rows of `scratch`.
 */
void virtual_sums(const double *w, int64_t pairs, int64_t rows, int64_t columns, int64_t first, int64_t stride,
                  int64_t symmetric, double same, double swapped, int64_t lefts, const int64_t *left_elements,
                  int64_t rights, const int64_t *right_elements, int64_t orbitals, const int64_t *transposed,
                  double *left, double *right, double *scratch)
{
    for (int64_t j = 0; j < pairs; j++) {
        const double *r = w + first + j * columns, *c = scratch;
        for (int64_t n = 0; n < orbitals; n++)
            for (int64_t a = 0; a < rows; a++)
                scratch[transposed[n] * rows + a] = r[a * stride + transposed[n]];
        for (int64_t n = 0; n < lefts; n++) {
            const int64_t a = left_elements[2 * n], b = left_elements[2 * n + 1];
            left[n] += same * dot(r + a * stride, r + b * stride, columns);
            if (swapped != 0)
                left[n] += swapped * dot(r + a * stride, c + b * rows, columns);
        }
        for (int64_t n = 0; n < (symmetric && j == pairs - 1 ? 0 : rights); n++) {
            const int64_t a = right_elements[2 * n], b = right_elements[2 * n + 1];
            right[n] += same * dot(c + a * rows, c + b * rows, rows);
            if (swapped != 0)
                right[n] += swapped * dot(c + a * rows, r + b * stride, rows);
        }
    }
}

/* sum_ab V[a,b] (same W[a,b] + swapped W[b,a]) of two matrices at w + v0 and w + w0; square if `swapped` is not 0. */
double pair_overlap(const double *w, int64_t v0, int64_t w0, int64_t rows, int64_t columns, int64_t stride,
                    double same, double swapped)
{
    double equal[TILE] = {0}, crossed[TILE] = {0}, u[TILE][TILE];
    for (int64_t a = 0; a < rows; a++)
        add_products(equal, w + v0 + a * stride, w + w0 + a * stride, columns);
    for (int64_t a0 = 0; swapped != 0 && a0 < rows; a0 += TILE)
        for (int64_t b0 = 0; b0 < columns; b0 += TILE) {
            const int na = rows - a0 < TILE ? (int)(rows - a0) : TILE;
            const int nb = columns - b0 < TILE ? (int)(columns - b0) : TILE;
            for (int b = 0; b < nb; b++)
                for (int a = 0; a < na; a++)
                    u[a][b] = w[w0 + (b0 + b) * stride + a0 + a];
            for (int a = 0; a < na; a++)
                add_products(crossed, w + v0 + (a0 + a) * stride + b0, u[a], nb);
        }
    return same * total(equal) + swapped * total(crossed);
}
