#include "model/uniform_route.h"

#include <algorithm>

#include "base/random.h"

namespace deepinfer {

void UniformRoute(const UniformRouteArgs& a, Work w) {
  const Span part = SplitWork(*a.n_rows, 1, w);
  for (int64_t r = part.begin; r < part.end; ++r) {
    uint64_t state =
        static_cast<uint64_t>(a.tokens[r]) << 32 | static_cast<uint32_t>(a.positions[r]);
    state = NextRandom(&state) + static_cast<uint64_t>(a.layer);
    int32_t* ids = a.ids + r * a.topk;
    for (int64_t i = 0; i < a.topk;) {
      ids[i] = static_cast<int32_t>(NextRandom(&state) % static_cast<uint64_t>(a.n_experts));
      if (std::find(ids, ids + i, ids[i]) == ids + i) ++i;
    }
    std::fill_n(a.weights + r * a.topk, a.topk, a.scaling / static_cast<float>(a.topk));
  }
}

}  // namespace deepinfer
