// Passes over a row of logits, several at a time in vectors of the baseline instruction set.
#pragma once

#include <cstddef>
#include <span>

namespace deepinfer {

// The largest of them, -inf if there is none; NaN is passed over.
float LargestOf(std::span<const float> values);

// Whether none is NaN or +inf.
bool AllBelowInfinity(std::span<const float> values);

}  // namespace deepinfer
