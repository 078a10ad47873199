// Read and multiply-add loops. Included inside namespace deepinfer::cpu::<isa>, after vec.inc.h.

static void ReadLoop(const uint8_t* data, int64_t bytes, uint32_t* sink) {
  constexpr int kVectors = 8, kVectorBytes = kLanes * 4;
  IntVec seen[kVectors];
  for (int k = 0; k < kVectors; ++k) seen[k] = SetInt(0);
  for (int64_t i = 0; i < bytes; i += kVectors * kVectorBytes) {
#pragma GCC unroll 8
    for (int k = 0; k < kVectors; ++k) {
      const float* p = reinterpret_cast<const float*>(data + i + k * kVectorBytes);
      seen[k] = Xor(seen[k], Bits(Load(p)));
    }
  }
  for (int k = 1; k < kVectors; ++k) seen[0] = Xor(seen[0], seen[k]);
  alignas(64) float lanes[kLanes];
  Store(lanes, FromBits(seen[0]));
  memcpy(sink, lanes, 4);
}

// 12 chains hide the latency of 4 cycles at two instructions a cycle. Values tend to 2.
static double FmaLoop(int64_t rounds, float* sink) {
  constexpr int kChains = 12;
  const Vec half = Set(0.5f), one = Set(1.0f);
  Vec x[kChains];
  for (int k = 0; k < kChains; ++k) x[k] = Set(static_cast<float>(k));
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 4
    for (int u = 0; u < 4; ++u) {
#pragma GCC unroll 12
      for (int k = 0; k < kChains; ++k) x[k] = Fma(x[k], half, one);
    }
  }
  Vec sum = Zero();
  for (int k = 0; k < kChains; ++k) sum = sum + x[k];
  *sink = Sum(sum);
  return 2.0 * 4 * kChains * kLanes * static_cast<double>(rounds);
}
