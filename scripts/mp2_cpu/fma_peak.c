/* What one core can multiply and add at most: independent chains of vector multiply-add, nothing loaded or stored. */
#include <stdint.h>

#if defined(__AVX512F__)
enum { VECTOR_BYTES = 64 };
#elif defined(__AVX__)
enum { VECTOR_BYTES = 32 };
#else
enum { VECTOR_BYTES = 16 };
#endif
typedef REAL vector __attribute__((vector_size(VECTOR_BYTES)));

enum { CHAINS = 12 };

/* Returns the flops done. `sink` takes the sums so that they cannot be left out. */
int64_t multiply_add(int64_t rounds, REAL *sink)
{
    vector sum[CHAINS], factor = (vector){0} + (REAL)0.999, term = (vector){0} + (REAL)1e-3;
    for (int c = 0; c < CHAINS; c++)
        sum[c] = (vector){0} + (REAL)c;
    for (int64_t round = 0; round < rounds; round++) {
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++)
            sum[c] = sum[c] * factor + term;
    }
    for (int c = 1; c < CHAINS; c++)
        sum[0] += sum[c];
    *sink = sum[0][0];
    return 2 * rounds * CHAINS * (int64_t)(VECTOR_BYTES / sizeof(REAL));
}
