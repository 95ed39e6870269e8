/* Execute a list of contractions of small arrays.
 *
 * An instruction adds coefficient * sum of left * right to an array. It is a header of HEADER numbers, followed by four
 * numbers for each shift and for each loop, the outermost first:
 *
 *     result, left, right (numbers of arrays; right is -1 if there is none), the coefficient's number, what it does,
 *     elements to set to zero first, number of loops, offsets of result, left and right, number of shifts
 *     for each shift: number of a loop around the instruction; offsets of result, left and right for each element of it
 *     for each loop: extent, strides of result, left and right
 *
 * It does one of five things: LOOPS runs the loops as they are. MATRICES is for three innermost loops over rows of left
 * and result, over the sum, and over neighbouring elements of right and result. DIVIDES sets result to 1 / left. CLEARS
 * only sets elements to zero. REPEATS is a loop around the instructions that follow: its first four numbers are the
 * number of the loop, its turns, the elements of a turn, and the length of these instructions; the eighth is the first
 * element.
 */
#include <stdint.h>
#include <string.h>

#define HEADER 11
#define DEEPEST 32
enum { LOOPS, MATRICES, DIVIDES, CLEARS, REPEATS };

typedef struct { int64_t n, o, l, r; } Loop;
typedef double x1;
typedef double x4 __attribute__((vector_size(32), aligned(8), may_alias));
typedef double x8 __attribute__((vector_size(64), aligned(8), may_alias));

/* Add c * (rows of left) * right to `rows` rows of neighbouring elements, as many as `kind` has. */
#define BLOCK(kind, rows)                                                                                              \
    static inline void block_##kind##_##rows(                                                                          \
        const Loop i, const Loop k, double *out, const double *left, const double *right, double c)                    \
    {                                                                                                                  \
        kind sum[rows] = {0};                                                                                          \
        for (int64_t n = 0; n < k.n; n++) {                                                                            \
            const kind b = *(const kind *)(right + n * k.r);                                                           \
            for (int m = 0; m < rows; m++) sum[m] += left[m * i.l + n * k.l] * b;                                      \
        }                                                                                                              \
        for (int m = 0; m < rows; m++) *(kind *)(out + m * i.o) += c * sum[m];                                         \
    }
BLOCK(x8, 4) BLOCK(x8, 1) BLOCK(x4, 4) BLOCK(x4, 1) BLOCK(x1, 4) BLOCK(x1, 1)

static void matrices(const Loop *loops, double *out, const double *left, const double *right, double c)
{
    const Loop i = loops[0], k = loops[1], j = loops[2];
    int64_t m = 0;
#define COLUMNS(rows)                                                                                                  \
    for (; m + rows <= i.n; m += rows) {                                                                               \
        double *o = out + m * i.o;                                                                                     \
        const double *l = left + m * i.l;                                                                              \
        int64_t n = 0;                                                                                                 \
        for (; n + 8 <= j.n; n += 8) block_x8_##rows(i, k, o + n, l, right + n, c);                                    \
        for (; n + 4 <= j.n; n += 4) block_x4_##rows(i, k, o + n, l, right + n, c);                                    \
        for (; n < j.n; n++) block_x1_##rows(i, k, o + n, l, right + n, c);                                            \
    }
    COLUMNS(4)
    COLUMNS(1)
}

static inline void innermost(const Loop x, double *restrict out, const double *left, const double *right, double c)
{
    if (x.o == 1 && x.l == 0 && x.r == 1) {
        const double a = c * *left;
        for (int64_t i = 0; i < x.n; i++) out[i] += a * right[i];
    } else if (x.o == 1 && x.l == 1 && x.r == 0) {
        const double a = c * *right;
        for (int64_t i = 0; i < x.n; i++) out[i] += a * left[i];
    } else if (x.o == 1 && x.l == 1 && x.r == 1) {
        for (int64_t i = 0; i < x.n; i++) out[i] += c * left[i] * right[i];
    } else if (x.o == 0) {
        double sum = 0;
        for (int64_t i = 0; i < x.n; i++) sum += left[i * x.l] * right[i * x.r];
        *out += c * sum;
    } else {
        for (int64_t i = 0; i < x.n; i++) out[i * x.o] += c * left[i * x.l] * right[i * x.r];
    }
}

static void reciprocals(const Loop *loops, int64_t count, double *out, const double *left)
{
    if (!count) {
        *out = 1 / *left;
        return;
    }
    for (int64_t i = 0; i < loops->n; i++) reciprocals(loops + 1, count - 1, out + i * loops->o, left + i * loops->l);
}

static void contraction(
    const Loop *loops, int64_t count, int64_t kind, double *out, const double *left, const double *right, double c)
{
    int64_t turn[DEEPEST] = {0};
    const int64_t outer = count - (kind == MATRICES ? 3 : 1);
    for (;;) {
        if (kind == MATRICES) matrices(loops + outer, out, left, right, c);
        else innermost(loops[outer], out, left, right, c);
        int64_t d = outer - 1;
        for (; d >= 0; d--) {
            const Loop x = loops[d];
            out += x.o, left += x.l, right += x.r;
            if (++turn[d] < x.n) break;
            turn[d] = 0;
            out -= x.n * x.o, left -= x.n * x.l, right -= x.n * x.r;
        }
        if (d < 0) return;
    }
}

static void instruction(const int64_t *t, const int64_t *addresses, const double *coefficients, const int64_t *starts)
{
    static const double one = 1;
    double *out = (double *)addresses[t[0]] + t[7];
    const double *left = (const double *)addresses[t[1]] + t[8];
    const double *right = t[2] < 0 ? &one : (const double *)addresses[t[2]] + t[9];
    const Loop *shifts = (const Loop *)(t + HEADER), *loops = shifts + t[10];
    for (const Loop *s = shifts; s < loops; s++) {
        const int64_t start = starts[s->n];
        out += start * s->o, left += start * s->l, right += start * s->r;
    }
    if (t[5]) memset(out, 0, t[5] * sizeof *out);
    if (t[4] == DIVIDES) reciprocals(loops, t[6], out, left);
    else if (t[4] != CLEARS) contraction(loops, t[6], t[4], out, left, right, coefficients[t[3]]);
}

/* `starts` has the first element of the turn of each loop around. */
void run_tape(
    const int64_t *tape, int64_t length, const int64_t *addresses, const double *coefficients, int64_t *starts)
{
    for (const int64_t *t = tape; t < tape + length;) {
        const int64_t *body = t + HEADER + 4 * (t[6] + t[10]);
        if (t[4] != REPEATS) {
            instruction(t, addresses, coefficients, starts);
            t = body;
            continue;
        }
        for (int64_t turn = 0; turn < t[1]; turn++) {
            starts[t[0]] = t[7] + turn * t[2];
            run_tape(body, t[3], addresses, coefficients, starts);
        }
        t = body + t[3];
    }
}
