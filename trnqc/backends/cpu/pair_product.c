/* T[r, c] = sum_k left[r, k] right[c, k] for a few rows and many columns: the GEMM of the pair step.
 *
 * Operands are packed once and serve as left and as right factor of many products, so that no product packs anything.
 * Rows stand in strips of one vector, VECTORS strips to a panel of P rows, and K is cut into runs: element (r, k)
 * lies at
 *
 *   data[k0 * panels * P + (r / WIDTH) * run * WIDTH + (k - k0) * WIDTH + r % WIDTH]      k in the run [k0, k0 + run)
 *
 * REAL is double or float. Every element of T is summed over k in the same order wherever its tile lies.
 */
#include <stdint.h>

/* A tile of T is MR rows by VECTORS vectors. Its sums, one run of columns and one row element fill the registers without
 * spilling, and are enough chains to hide the latency of multiply-add. MR divides WIDTH. Up to ROW_BLOCK rows of `left`
 * stay in the second-level cache while the columns pass by; CPUs without AVX-512 have as little as 512 kB of it. */
#if defined(__AVX512F__)
enum { VECTOR_BYTES = 64, VECTORS = 2, MR = 8, ROW_BLOCK = 256 };
#elif defined(__AVX__)
enum { VECTOR_BYTES = 32, VECTORS = 3, MR = 4, ROW_BLOCK = 208 };
#else
#error "written for AVX and AVX-512; elsewhere the BLAS of the platform serves better"
#endif
enum { WIDTH = VECTOR_BYTES / sizeof(REAL), P = VECTORS * WIDTH };
enum { TILE = 32 };       /* of pair_energy.c, which reads a symmetric T in whole tiles */
/* The longest run: its panel of columns and the strip of rows that passes by stay in a first-level cache of 32 kB. */
enum { LONGEST = 28 * 1024 / ((VECTORS + 1) * VECTOR_BYTES) };
enum { LINE = 64 / sizeof(REAL) };

typedef REAL vector __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));

/* Holds x in a register here. Without it a compiler may read a run of columns anew for every row, or let the sums of
 * an unrolled loop spill. */
#define KEEP(x) __asm__ volatile("" : "+v"(x))

int64_t panel_rows(void) { return P; }

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Length of even parts of n, at most `most` each: a short last run would cost as many loads and stores of T as a long
 * one, and a short last block of rows as many loads of columns. */
static int64_t even(int64_t n, int64_t most)
{
    const int64_t parts = (n + most - 1) / most;
    return parts > 1 ? (n + parts - 1) / parts : most;
}

/* Packs rows [row, row + rows) of an operand of `panels` panels from source[rows, K]. */
void pack(const REAL *source, int64_t rows, int64_t K, int64_t row, int64_t panels, REAL *data)
{
    const int64_t longest = even(K, LONGEST);
    for (int64_t k0 = 0; k0 < K; k0 += longest) {
        const int64_t run = smaller(longest, K - k0);
        for (int64_t r0 = 0; r0 < rows;) {
            const int64_t lane = (row + r0) % WIDTH, n = smaller(WIDTH - lane, rows - r0);
            REAL *to = data + k0 * panels * P + (row + r0) / WIDTH * run * WIDTH + lane;
            for (int64_t k = 0; k < run; k += LINE)
                for (int64_t r = 0; r < n; r++)
                    for (int64_t q = k; q < smaller(k + LINE, run); q++)
                        to[q * WIDTH + r] = source[(r0 + r) * K + k0 + q];
            r0 += n;
        }
    }
}

/* One tile of mr x P elements. `mr` is a constant in every call, so that the sums stay in registers. */
static inline __attribute__((always_inline)) void tile(int mr, int64_t run, const REAL *restrict left,
                                                       const REAL *restrict right, REAL *restrict t, int64_t stride,
                                                       int add)
{
    vector sum[MR][VECTORS], column[VECTORS];
#pragma GCC unroll 16
    for (int r = 0; r < mr; r++) {
        __builtin_prefetch(t + r * stride, 1);
        __builtin_prefetch(t + r * stride + P - 1, 1);
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++)
            sum[r][v] = (vector){0};
    }
#pragma GCC unroll 4
    for (int64_t k = 0; k < run; k++) {
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) {
            column[v] = *(const vector *)(right + (v * run + k) * WIDTH);
            KEEP(column[v]);
        }
#pragma GCC unroll 16
        for (int r = 0; r < mr; r++)
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++) {
                sum[r][v] += left[k * WIDTH + r] * column[v];
                KEEP(sum[r][v]);
            }
    }
#pragma GCC unroll 16
    for (int r = 0; r < mr; r++)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) {
            vector *to = (vector *)(t + r * stride + v * WIDTH);
            if (add) /* runs are summed apart: shorter chains err less */
                sum[r][v] += *to;
            *to = sum[r][v];
        }
}

static void tile_of(int mr, int64_t run, const REAL *left, const REAL *right, REAL *t, int64_t stride, int add)
{
    switch (mr) {
#define CASE(n) case n: tile(n, run, left, right, t, stride, add); break;
        CASE(1) CASE(2) CASE(3) CASE(4)
#if __AVX512F__
        CASE(5) CASE(6) CASE(7) CASE(8)
#endif
#undef CASE
    }
}

/* Rows [first, last) of t, counted from `row` of left, by one panel of columns; meanwhile the next panel is fetched. */
static void column_of_tiles(int64_t first, int64_t last, int64_t row, int64_t run, const REAL *left, const REAL *right,
                            REAL *t, int64_t stride, int add)
{
    const REAL *const next = right + P * run, *ahead = next;
    for (int64_t r = first; r < last;) {
        const int64_t lane = (row + r) % WIDTH, mr = smaller(MR - lane % MR, last - r);
        tile_of((int)mr, run, left + (row + r) / WIDTH * run * WIDTH + lane, right, t + r * stride, stride, add);
        r += mr;
        for (; ahead < next + P * run * (r - first) / (last - first); ahead += LINE)
            __builtin_prefetch(ahead, 0, 2);
    }
}

/* t[rows, stride]: rows [row, row + rows) of `left` by panels [panel, panel + stride / P) of `right`.
 *
 * From column `symmetric` of t on, T is symmetric with its first element there (i = j), and tiles that lie wholly above
 * its diagonal are left as they are; pass `stride` where there is no such part.
 */
void product(const REAL *left, int64_t left_panels, int64_t row, int64_t rows, const REAL *right, int64_t right_panels,
             int64_t panel, int64_t K, int64_t symmetric, REAL *t, int64_t stride)
{
    const int64_t longest = even(K, LONGEST), most = even(rows, ROW_BLOCK);
    for (int64_t k0 = 0; k0 < K; k0 += longest) {
        const int64_t run = smaller(longest, K - k0);
        const REAL *rows_of = left + k0 * left_panels * P;
        const REAL *columns_of = right + (k0 * right_panels + panel * run) * P;
        for (int64_t block = 0; block < rows; block += most) {
            const int64_t last = smaller(block + most, rows);
            for (int64_t c = 0; c < stride; c += P) {
                const int64_t above = c > symmetric ? (c - symmetric) / TILE * TILE : 0;
                const int64_t first = above > block ? above : block;
                column_of_tiles(first, last, row, run, rows_of, columns_of + c * run, t + c, stride, k0 > 0);
            }
        }
    }
}
