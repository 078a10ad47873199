// Counter-based random numbers (Philox4x32 of Salmon et al., SC'11) and their mapping to draws
// (spec 06 section 5). A number depends only on (seed, sample, position, stream, index): not on the
// batch, the step or earlier draws.
#pragma once

#include <array>
#include <cstdint>

namespace deepinfer {

// The generator itself. Published with 10 rounds; the publication's test vectors also cover 7.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key,
                                   int rounds = 10);

// Independent sequences at one position.
enum class Stream : uint32_t {
  kTarget = 0,  // the emitted token: plain sampling, residual after a rejection, bonus token
  kAccept = 1,  // accept or reject a draft token (index 0)
  kDraft = 2,   // the draft's own proposal
};

// Which token of which request is drawn.
struct DrawKey {
  uint64_t seed;
  uint32_t sample;    // 0 .. n-1 of a request with n parallel samples
  uint32_t position;  // absolute position of the drawn token, prompt included, from 0
};

// The words of indices 4 * block .. 4 * block + 3. The index is the token id for Gumbel noise.
std::array<uint32_t, 4> RandomWords(const DrawKey& key, Stream stream, uint32_t block);

// (word + 1/2) / 2^32, exact in double, never 0 and never 1.
inline double UniformFromWord(uint32_t word) { return (word + 0.5) * 0x1p-32; }

// -ln(-ln u) of that uniform. In double, since float would turn u near 1 into infinity.
double GumbelFromWord(uint32_t word);

}  // namespace deepinfer
