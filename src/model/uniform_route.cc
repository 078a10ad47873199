#include "model/uniform_route.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"

namespace deepinfer {

namespace {

void RouteByHash(const UniformRouteArgs& a, int64_t r, int32_t* ids) {
  uint64_t state = static_cast<uint64_t>(a.tokens[r]) << 32 | static_cast<uint32_t>(a.positions[r]);
  state = NextRandom(&state) + static_cast<uint64_t>(a.layer);
  for (int64_t i = 0; i < a.topk;) {
    ids[i] = static_cast<int32_t>(NextRandom(&state) % static_cast<uint64_t>(a.n_experts));
    if (std::find(ids, ids + i, ids[i]) == ids + i) ++i;
  }
}

void RouteByPosition(const UniformRouteArgs& a, int64_t r, int32_t* ids) {
  const double step = a.topk * (1.0 - double{a.overlap});
  const auto first = static_cast<int64_t>(std::floor(a.positions[r] * step + 1e-6)) + a.layer;
  for (int64_t i = 0; i < a.topk; ++i) ids[i] = static_cast<int32_t>((first + i) % a.n_experts);
}

}  // namespace

void UniformRoute(const UniformRouteArgs& a, Work w) {
  const Span part = SplitWork(*a.n_rows, 1, w);
  for (int64_t r = part.begin; r < part.end; ++r) {
    if (a.overlap < 0)
      RouteByHash(a, r, a.ids + r * a.topk);
    else
      RouteByPosition(a, r, a.ids + r * a.topk);
    std::fill_n(a.weights + r * a.topk, a.topk, a.scaling / static_cast<float>(a.topk));
  }
}

}  // namespace deepinfer
