// Cheap random words for made-up weights, caches and prompts. Not for sampling (sampler/philox.h).
#pragma once

#include <cstdint>

namespace deepinfer {

// SplitMix64 (Steele, Lea, Flood 2014): any state is a good start.
inline uint64_t NextRandom(uint64_t* state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace deepinfer
