// Golden sets: what an independent implementation of the model computed for one checkpoint, one
// numerics mode and one prompt. A set is two files, NAME.MODE.PROMPT.json and
// NAME.MODE.PROMPT.safetensors.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace deepinfer {

// A stored array; values or ints is filled, by dtype (F32, or I32 and I64).
struct GoldenArray {
  std::vector<int64_t> shape;
  bool is_float = false;
  std::vector<float> values;
  std::vector<int64_t> ints;

  int64_t rows() const { return shape[0]; }
  int64_t cols() const;  // elements of a row, the product of the other dimensions
};

// What the draft stages made of one anchor.
struct GoldenDraft {
  TokenId anchor;
  std::vector<TokenId> drafts;
  std::vector<float> confidence;  // before the sigmoid
};

// One step of greedy decoding with drafts.
struct GoldenSpeculation {
  GoldenDraft draft;
  std::vector<float> margin;      // leads of the drafts
  int64_t position;               // of the anchor
  std::vector<TokenId> verified;  // the backbone's choice behind the anchor and every draft
  int64_t accepted;
};

struct GoldenSet {
  std::string name, mode, prompt_name;  // of NAME.MODE.PROMPT
  std::vector<TokenId> prompt;
  // For every prompt position: best next token, and its lead over the second.
  std::vector<TokenId> argmax;
  std::vector<float> argmax_margin;
  // Greedy continuation of the prompt, and the leads.
  std::vector<TokenId> greedy;
  std::vector<float> greedy_margin;
  // The draft behind the prompt (none when the model has no draft stages), and steps that continue
  // the prompt (some sets).
  std::optional<GoldenDraft> first_draft;
  std::vector<GoldenSpeculation> speculative;
  // Prompt positions, ascending, that the per-position arrays have rows for.
  std::vector<int64_t> kept_positions;
  // "layers.L.*", "logits" and "final_hidden" [kept, ...], "all.layers.L.*" [T, ...], "streams.L"
  // [T, S, hidden] entering layer L, "pre.L" [T, S] left by layer L - 1, "greedy_logits" [4, vocab]
  // (row 0: last prompt position, then after each greedy token), and arrays of the draft stages.
  std::map<std::string, GoldenArray, std::less<>> arrays;

  std::string Title() const { return name + "." + mode + "." + prompt_name; }
  const GoldenArray* Find(std::string_view array) const;
  // The set has the streams that enter every layer at all positions.
  bool has_streams() const { return Find("streams.0") != nullptr; }
};

// Prompt names of the sets NAME.MODE.* in `dir`, sorted. Throws Error kNotFound when there are none
// and kIo when the directory cannot be read.
std::vector<std::string> FindGoldenPrompts(const std::string& dir, const std::string& name,
                                           const std::string& mode);

// Reads both files of a set. Throws Error naming the file and field: kNotFound, kIo, kCorrupt
// (not the format, lengths that do not fit together), kInvalid (an id outside the vocabulary).
GoldenSet LoadGoldenSet(const std::string& dir, const std::string& name, const std::string& mode,
                        const std::string& prompt_name, int64_t vocab_size);

}  // namespace deepinfer
