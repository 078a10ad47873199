#include "base/cpu_features.h"

#include <cpuid.h>
#include <fmt/core.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"

namespace deepinfer {
namespace {

constexpr uint64_t kXcr0Avx = 0x6;          // SSE and AVX registers
constexpr uint64_t kXcr0Avx512 = 0xe6;      // and mask registers, upper halves, registers 16 to 31
constexpr uint64_t kXcr0Amx = 0x60000;      // tile configuration and tile data
constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
constexpr int kTileData = 18;

bool Bit(uint32_t word, int bit) { return (word >> bit & 1) != 0; }

uint64_t ReadXcr0() {
  uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

CpuidAnswers AskCpu() {
  CpuidAnswers answers{};
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx)) {
    answers.leaf1_ecx = ecx;
    if (Bit(ecx, 27)) answers.xcr0 = ReadXcr0();  // OSXSAVE
  }
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) {
    answers.leaf7_ebx = ebx;
    answers.leaf7_ecx = ecx;
    answers.leaf7_edx = edx;
  }
  answers.amx_permitted =
      Bit(answers.leaf7_edx, 24) && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return answers;
}

}  // namespace

CpuFeatures CpuFeatures::Masked(std::string_view level) const {
  if (level == "generic") return {};
  CpuFeatures masked = *this;
  if (level == "amx") return masked;
  masked.amx_tile = masked.amx_bf16 = masked.amx_int8 = false;
  if (level == "avx512") return masked;
  masked.avx512f = masked.avx512bw = masked.avx512dq = masked.avx512vl = false;
  masked.avx512vnni = masked.avx512vbmi = false;
  if (level == "avx2") return masked;
  throw Error(
      Code::kInvalid,
      fmt::format("instruction set level '{}': expected generic, avx2, avx512 or amx", level));
}

CpuFeatures FeaturesFrom(const CpuidAnswers& a) {
  const bool ymm = (a.xcr0 & kXcr0Avx) == kXcr0Avx;
  const bool zmm = (a.xcr0 & kXcr0Avx512) == kXcr0Avx512;
  const bool tiles = (a.xcr0 & kXcr0Amx) == kXcr0Amx && a.amx_permitted;
  CpuFeatures f{};
  f.avx2 = ymm && Bit(a.leaf7_ebx, 5);
  f.fma = ymm && Bit(a.leaf1_ecx, 12);
  f.f16c = ymm && Bit(a.leaf1_ecx, 29);
  f.avx512f = zmm && Bit(a.leaf7_ebx, 16);
  f.avx512dq = zmm && Bit(a.leaf7_ebx, 17);
  f.avx512bw = zmm && Bit(a.leaf7_ebx, 30);
  f.avx512vl = zmm && Bit(a.leaf7_ebx, 31);
  f.avx512vbmi = zmm && Bit(a.leaf7_ecx, 1);
  f.avx512vnni = zmm && Bit(a.leaf7_ecx, 11);
  f.amx_bf16 = tiles && Bit(a.leaf7_edx, 22);
  f.amx_tile = tiles && Bit(a.leaf7_edx, 24);
  f.amx_int8 = tiles && Bit(a.leaf7_edx, 25);
  return f;
}

const CpuFeatures& DetectCpuFeatures() {
  static const CpuFeatures features = FeaturesFrom(AskCpu());
  return features;
}

}  // namespace deepinfer
