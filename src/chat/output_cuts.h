// An answer parsed in pieces: what the parser promises about cuts, as a check.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "chat/output_parser.h"

namespace deepinfer {

// The characters of UTF-8 text.
std::vector<std::string_view> Characters(std::string_view text);

ParsedOutput ParsePieces(const OutputParserOptions& options,
                         std::span<const std::string_view> pieces);
ParsedOutput ParseOutput(const OutputParserOptions& options, std::string_view text);

// Whether what was sent for each call says the same as its arguments as a whole: the same JSON, or
// JSON that stays open because the call ends inside a string.
bool SentAgrees(const ParsedOutput& output);

struct CutDifference {
  int64_t cut;          // characters in front of it; -1: cut between any two
  ParsedOutput result;  // not that of the text in one piece, or not SentAgrees
};

// Tries the text in one piece, in every two pieces, and character by character. Takes quadratic
// time.
std::optional<CutDifference> FindCutDifference(const OutputParserOptions& options,
                                               std::string_view text);

}  // namespace deepinfer
