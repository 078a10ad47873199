// Engram token classes ("compressed vocabulary", spec 04 section 2): tokens whose text is the same
// after normalisation share a class.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace deepinfer {

// Class of every token id, numbered 0, 1, 2, ... in order of first appearance.
std::vector<int32_t> TokenClasses(const Tokenizer& tokenizer);

// Number of classes: what the config calls engram_compressed_vocab_size.
int32_t NumTokenClasses(const std::vector<int32_t>& classes);

// Valid UTF-8 to its normal form: NFKC, NFD, no marks, lower case, runs of [ \t\r\n] to one space,
// no white space at the ends (a lone space stays). May be empty.
std::string NormalizeForClass(std::string_view text);

}  // namespace deepinfer
