// Router. Included inside namespace deepinfer::cpu::<isa>.

// ln(1 + e) for e >= 0, to about 2 ulp. 1 + e = u + what u lost by rounding; u = 2^k m with m
// around 1, and ln m = 2 (t + t^3/3 + t^5/5 + ...), t = (m - 1) / (m + 1), |t| <= 0.172.
static inline Vec Log1p(Vec e) {
  const Vec u = Set(1.0f) + e;
  const Vec lost = (e - (u - Set(1.0f))) / u;
  const IntVec k =
      ShiftRight<23>(SubInt(Bits(u), SetInt(0x3f3504f3)));  // m in [sqrt(1/2), sqrt(2))
  const Vec m = FromBits(SubInt(Bits(u), ShiftLeft<23>(k)));
  const Vec t = (m - Set(1.0f)) / (m + Set(1.0f)), t2 = t * t;
  Vec p = Set(2.0f / 9);
  p = Fma(p, t2, Set(2.0f / 7));
  p = Fma(p, t2, Set(2.0f / 5));
  p = Fma(p, t2, Set(2.0f / 3));
  p = Fma(p, t2, Set(2.0f));
  const Vec whole = ToFloat(k);
  const Vec low = Fma(whole, Set(0x1.7f7d1cp-20f), Fma(p, t, lost));
  return Fma(whole, Set(0x1.62e4p-1f), low);  // ln 2 in two parts, as in Exp
}

// sqrt(softplus(z)), softplus(z) = z above 20. NaN stays NaN.
static inline Vec RouterScore(Vec z) {
  const Vec capped = Min(Set(20.0f), z);
  return Sqrt(Select(Less(Set(20.0f), z), z, Log1p(Exp(capped))));
}

// The best experts seen so far, best first, lower id first on ties.
struct BestExperts {
  int32_t* ids;   // [topk]
  float* biased;  // [topk]
  int32_t topk, count;
};

// Experts come in ascending order, so an equal one goes behind.
static inline void Insert(BestExperts* best, int32_t id, float biased) {
  if (best->count == best->topk && !(biased > best->biased[best->topk - 1])) return;
  int32_t at = best->count < best->topk ? best->count++ : best->topk - 1;
  for (; at > 0 && biased > best->biased[at - 1]; --at) {
    best->ids[at] = best->ids[at - 1];
    best->biased[at] = best->biased[at - 1];
  }
  best->ids[at] = id;
  best->biased[at] = biased;
}

// A NaN score counts as the lowest. Returns whether there was one.
static inline bool ChooseExperts(const float* logits, const uint8_t* bias, int32_t n,
                                 BestExperts* best) {
  float biased[kLanes];
  Vec nans = Zero();
  for (int32_t e = 0; e < n; e += kLanes) {
    const Vec addend = LoadFirst(reinterpret_cast<const float*>(bias + 4 * int64_t{e}), n - e);
    const Vec sum = RouterScore(LoadFirst(logits + e, n - e)) + addend;
    Store(biased, Select(IsNan(sum), Set(-INFINITY), sum));
    nans = nans + Select(IsNan(sum), Set(1.0f), Zero());
    // Most experts are not better than the worst that is kept.
    uint32_t lanes = n - e >= kLanes ? (1u << kLanes) - 1 : (1u << (n - e)) - 1;
    if (best->count == best->topk) {
      lanes &= LaneBits(Less(Set(best->biased[best->topk - 1]), Load(biased)));
    }
    for (; lanes != 0; lanes &= lanes - 1) {
      const int32_t lane = __builtin_ctz(lanes);
      Insert(best, e + lane, biased[lane]);
    }
  }
  return Sum(nans) > 0;
}

void Route(const RouteArgs& a, Work w) {
  const Span part = SplitWork(*a.n_rows, 1, w);
  for (int64_t r = part.begin; r < part.end; ++r) {
    const float* logits = a.logits + r * a.n_experts;
    int32_t* ids = a.ids + r * a.topk;
    float* weights = a.weights + r * a.topk;
    BestExperts best = {ids, weights, a.topk, 0};
    const bool nan = ChooseExperts(logits, a.bias, a.n_experts, &best);
    const float scaling = nan ? NAN : a.scaling;
    float total = 0;
    for (int32_t i = 0; i < a.topk; ++i) {
      weights[i] = FirstLane(RouterScore(Set(logits[ids[i]])));
      total += weights[i];
    }
    for (int32_t i = 0; i < a.topk; ++i) {
      if (a.normalize) weights[i] /= total + 1e-20f;
      weights[i] *= scaling;
    }
  }
}
