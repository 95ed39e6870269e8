#ifdef __CUDACC_RTC__
#define INFINITY (1e300 * 1e300)
#define NAN (INFINITY - INFINITY)
#endif

extern "C" __global__ void __launch_bounds__(64) polynomial(long long n, const double *__restrict__ x, double *y, double *z) {
    const int lane = threadIdx.x;
    (void)lane;
    const long long group = blockIdx.x;
    for (long long i = 0; i < n; i++) {
        double p = fma(fma(fma(2.0, x[(group * n + i) * 64 + lane], 0.25), x[(group * n + i) * 64 + lane], -0.5), x[(group * n + i) * 64 + lane], 1.0);
        y[(group * n + i) * 64 + lane] = p;
        z[(group * n + i) * 64 + lane] = p * p;
    }
}
