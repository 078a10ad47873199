#include "backend/cpu/avx2/kernels.h"

namespace deepinfer::cpu::avx2 {
// Each text uses those before it. The experts exist twice: on floats, and on exact integers.
// clang-format off
#include "backend/cpu/vec.inc.h"
#include "backend/cpu/row_codec.inc.h"
#include "backend/cpu/weights_avx2.inc.h"
#include "backend/cpu/weight_rows.inc.h"
#include "backend/cpu/expert_lists.inc.h"
namespace floats {
#include "backend/cpu/matrix.inc.h"
#include "backend/cpu/experts.inc.h"
}  // namespace floats
namespace digits {
#include "backend/cpu/fp4_digit_groups.inc.h"
#include "backend/cpu/fp4_digits_avx2.inc.h"
#include "backend/cpu/fp4_digits.inc.h"
#include "backend/cpu/experts.inc.h"
}  // namespace digits
// clang-format on

void GateUp(const GateUpArgs& a, Work work) {
  if (a.fp8_inputs && AllFp4(a.pairs, a.experts)) return digits::GateUpPanels(a, work);
  floats::GateUpPanels(a, work);
}

void Down(const DownArgs& a, Work work) {
  if (a.fp8_inputs && AllFp4(a.pairs, a.experts)) return digits::DownPanels(a, work);
  floats::DownPanels(a, work);
}
}  // namespace deepinfer::cpu::avx2
