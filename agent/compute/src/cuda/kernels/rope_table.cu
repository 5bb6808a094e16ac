// Cosines and sines of a step's positions.
#include "args.cuh"

using namespace pd;

namespace {

constexpr uint32_t ROPE_THREADS = 128;

// Sine and cosine of 0 ≤ x < 2^20 within 1e-15, by the polynomials of the CPU backend, so that both backends'
// tables agree; a GPU has doubles to spare here.
DEVICE void sin_cos(double x, double& sin, double& cos) {
  double quarters = rint(x * 0.636619772367581343);
  double r = (x - quarters * 1.5707963267341256) - quarters * 6.077100506506192e-11;
  double r2 = r * r;
  double s = -1.0 / 1307674368000.0;
  s = s * r2 + 1.0 / 6227020800.0;
  s = s * r2 - 1.0 / 39916800.0;
  s = s * r2 + 1.0 / 362880.0;
  s = s * r2 - 1.0 / 5040.0;
  s = s * r2 + 1.0 / 120.0;
  s = s * r2 - 1.0 / 6.0;
  s = r + r * r2 * s;
  double c = 1.0 / 20922789888000.0;
  c = c * r2 - 1.0 / 87178291200.0;
  c = c * r2 + 1.0 / 479001600.0;
  c = c * r2 - 1.0 / 3628800.0;
  c = c * r2 + 1.0 / 40320.0;
  c = c * r2 - 1.0 / 720.0;
  c = c * r2 + 1.0 / 24.0;
  c = c * r2 - 0.5;
  c = 1.0 + r2 * c;
  int quadrant = int(quarters) & 3;
  sin = quadrant == 0 ? s : quadrant == 1 ? c : quadrant == 2 ? -s : -c;
  cos = quadrant == 0 ? c : quadrant == 1 ? -s : quadrant == 2 ? -c : s;
}

}  // namespace

// Grid: rows · half, by threads.
KERNEL(pd_rope_table, RopeTableArgs, ROPE_THREADS) {
  uint32_t at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= args.rows * args.half) return;
  uint32_t r = at / args.half, i = at % args.half;
  // The angle is rounded to f32, as the reference implementations do.
  float angle = float(args.positions[r]) * args.inv_freq[i];
  double sin, cos;
  sin_cos(double(angle), sin, cos);
  float* row = args.out + uint64_t(r) * 2 * args.half;
  row[i] = float(cos) * args.factor;
  row[args.half + i] = float(sin) * args.factor;
}
