#include "backend/cpu/avx512/kernels.h"

namespace deepinfer::cpu::avx512 {
// Each text uses those before it.
// clang-format off
#include "backend/cpu/vec.inc.h"
#include "backend/cpu/row_codec.inc.h"
#include "backend/cpu/index_scores.inc.h"
#include "backend/cpu/index_selection.inc.h"
#include "backend/cpu/index_select.inc.h"
// clang-format on

void IndexSelect(const IndexSelectArgs& a, Work w) { SelectRows(a, w); }
void IndexMerge(const IndexSelectArgs& a, Work w) { MergeRows(a, w); }
}  // namespace deepinfer::cpu::avx512
