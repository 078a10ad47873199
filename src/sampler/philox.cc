#include "sampler/philox.h"

#include <cmath>

namespace deepinfer {

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key,
                                   int rounds) {
  for (int round = 0; round < rounds; ++round) {
    const uint64_t product0 = uint64_t{counter[0]} * 0xD2511F53u;
    const uint64_t product1 = uint64_t{counter[2]} * 0xCD9E8D57u;
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

std::array<uint32_t, 4> RandomWords(const DrawKey& key, Stream stream, uint32_t block) {
  return Philox4x32({block, key.position, static_cast<uint32_t>(stream), key.sample},
                    {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)});
}

double GumbelFromWord(uint32_t word) { return -std::log(-std::log(UniformFromWord(word))); }

}  // namespace deepinfer
