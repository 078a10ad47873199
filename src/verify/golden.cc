#include "verify/golden.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "base/error.h"
#include "base/read_file.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/safetensors.h"

namespace deepinfer {

namespace {

using nlohmann::json;

constexpr int64_t kMaxJsonBytes = int64_t{256} << 20;

[[noreturn]] void Corrupt(const std::string& file, const std::string& sentence) {
  throw Error(Code::kCorrupt, fmt::format("{}: {}", file, sentence));
}

// ---- NAME.MODE.PROMPT.json ----

// A list of numbers; integers below 2^31 when T is an integer type.
template <class T>
std::vector<T> NumberList(const json& record, const char* field, const std::string& file) {
  const auto found = record.find(field);
  if (found == record.end() || !found->is_array())
    Corrupt(file, fmt::format("{}: expected a list of numbers, found none", field));
  std::vector<T> list;
  for (const json& item : *found) {
    const bool fits = std::is_integral_v<T> ? item.is_number_integer() &&
                                                  item.get<double>() >= -0x1p31 &&
                                                  item.get<double>() < 0x1p31
                                            : item.is_number();
    if (!fits)
      Corrupt(file, fmt::format("{}: expected numbers, found {}", field, item.type_name()));
    list.push_back(item.get<T>());
  }
  return list;
}

void CheckLength(const std::string& file, const char* field, size_t found, size_t expected) {
  if (found != expected)
    Corrupt(file, fmt::format("{}: expected {} entries, found {}", field, expected, found));
}

void CheckIds(const std::string& file, const char* field, const std::vector<TokenId>& ids,
              int64_t vocab_size) {
  for (TokenId id : ids) {
    if (id >= 0 && id < vocab_size) continue;
    throw Error(Code::kInvalid, fmt::format("{}: {}: expected token ids from 0 to {}, found {}",
                                            file, field, vocab_size - 1, id));
  }
}

GoldenDraft ReadDraft(const json& record, int64_t vocab_size, const std::string& file) {
  GoldenDraft draft{.anchor = -1,
                    .drafts = NumberList<TokenId>(record, "drafts", file),
                    .confidence = NumberList<float>(record, "confidence", file)};
  if (record.contains("anchor") && record["anchor"].is_number_integer())
    draft.anchor = record["anchor"];
  CheckIds(file, "anchor", {draft.anchor}, vocab_size);
  CheckIds(file, "drafts", draft.drafts, vocab_size);
  CheckLength(file, "confidence", draft.confidence.size(), draft.drafts.size());
  return draft;
}

// The steps follow each other from the end of the prompt on.
void ReadSpeculation(const json& steps, int64_t vocab_size, const std::string& file,
                     GoldenSet* set) {
  if (!steps.is_array()) Corrupt(file, "speculative.steps: expected a list, found none");
  auto position = static_cast<int64_t>(set->prompt.size());
  for (const json& step : steps) {
    GoldenSpeculation s{.draft = ReadDraft(step, vocab_size, file),
                        .margin = NumberList<float>(step, "draft_margin", file),
                        .position = position,
                        .verified = NumberList<TokenId>(step, "verified", file),
                        .accepted = 0};
    const std::vector<TokenId>& drafts = s.draft.drafts;
    CheckLength(file, "draft_margin", s.margin.size(), drafts.size());
    CheckLength(file, "verified", s.verified.size(), drafts.size() + 1);
    while (s.accepted < std::ssize(drafts) &&
           drafts[static_cast<size_t>(s.accepted)] == s.verified[static_cast<size_t>(s.accepted)]) {
      ++s.accepted;
    }
    if (step.value("accepted", int64_t{-1}) != s.accepted ||
        step.value("position", int64_t{-1}) != position) {
      Corrupt(file, fmt::format("speculative.steps: expected position {} and {} accepted drafts, "
                                "found others",
                                position, s.accepted));
    }
    position += 1 + s.accepted;
    set->speculative.push_back(std::move(s));
  }
}

void ReadRecord(const std::string& file, int64_t vocab_size, GoldenSet* set) {
  const json record = json::parse(ReadFile(file, kMaxJsonBytes), nullptr, false);
  if (!record.is_object()) Corrupt(file, "expected a JSON object, found something else");
  set->prompt = NumberList<TokenId>(record, "prompt", file);
  set->argmax = NumberList<TokenId>(record, "argmax", file);
  set->argmax_margin = NumberList<float>(record, "argmax_margin", file);
  set->greedy = NumberList<TokenId>(record, "greedy", file);
  set->greedy_margin = NumberList<float>(record, "greedy_margin", file);
  set->kept_positions = NumberList<int64_t>(record, "kept_positions", file);
  if (set->prompt.empty()) Corrupt(file, "prompt: expected at least one token id, found none");
  CheckLength(file, "argmax", set->argmax.size(), set->prompt.size());
  CheckLength(file, "argmax_margin", set->argmax_margin.size(), set->prompt.size());
  CheckLength(file, "greedy_margin", set->greedy_margin.size(), set->greedy.size());
  CheckIds(file, "prompt", set->prompt, vocab_size);
  CheckIds(file, "argmax", set->argmax, vocab_size);
  CheckIds(file, "greedy", set->greedy, vocab_size);
  if (const auto draft = record.find("first_draft"); draft != record.end())
    set->first_draft = ReadDraft(*draft, vocab_size, file);
  if (const auto steps = record.find("speculative"); steps != record.end())
    ReadSpeculation(steps->is_object() ? steps->value("steps", json()) : json(), vocab_size, file,
                    set);
  int64_t last = -1;
  for (int64_t p : set->kept_positions) {
    if (p <= last || p >= static_cast<int64_t>(set->prompt.size())) {
      Corrupt(file, fmt::format("kept_positions: expected ascending positions below {}, found {}",
                                set->prompt.size(), p));
    }
    last = p;
  }
}

// ---- NAME.MODE.PROMPT.safetensors ----

template <class T, class To>
void CopyValues(const uint8_t* data, int64_t count, std::vector<To>* out) {
  out->resize(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, data + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    (*out)[static_cast<size_t>(i)] = static_cast<To>(value);
  }
}

GoldenArray ReadArray(const HeaderTensor& t, const uint8_t* data, const std::string& file) {
  GoldenArray array;
  array.shape = t.shape;
  array.is_float = t.dtype == "F32";
  if (array.shape.empty())
    Corrupt(file,
            fmt::format("{}: expected at least one dimension, found none", Printable(t.name)));
  if (array.is_float) {
    CopyValues<float>(data, (t.end - t.begin) / 4, &array.values);
  } else if (t.dtype == "I32") {
    CopyValues<int32_t>(data, (t.end - t.begin) / 4, &array.ints);
  } else if (t.dtype == "I64") {
    CopyValues<int64_t>(data, (t.end - t.begin) / 8, &array.ints);
  } else {
    Corrupt(file, fmt::format("{}: expected dtype F32, I32 or I64, found {}", Printable(t.name),
                              Printable(t.dtype)));
  }
  return array;
}

// Rows an array must have, or -1 when its name does not say.
int64_t ExpectedRows(const GoldenSet& set, std::string_view name) {
  if (name.starts_with("all.") || name.starts_with("streams.") || name.starts_with("pre."))
    return static_cast<int64_t>(set.prompt.size());
  if (name.starts_with("layers.") || name == "logits" || name == "final_hidden")
    return static_cast<int64_t>(set.kept_positions.size());
  return -1;
}

void ReadArrays(const std::string& file, GoldenSet* set) {
  const MappedFile mapped(file);
  const SafetensorsHeader header = ParseSafetensorsHeader(mapped.data(), mapped.size(), file);
  for (const HeaderTensor& t : header.tensors) {
    GoldenArray array = ReadArray(t, mapped.data() + header.data_start + t.begin, file);
    const int64_t rows = ExpectedRows(*set, t.name);
    if (rows >= 0 && array.rows() != rows) {
      Corrupt(file, fmt::format("{}: expected {} rows, one per position, found {}",
                                Printable(t.name), rows, array.rows()));
    }
    set->arrays.emplace(t.name, std::move(array));
  }
}

}  // namespace

int64_t GoldenArray::cols() const {
  int64_t cols = 1;
  for (size_t d = 1; d < shape.size(); ++d) cols *= shape[d];
  return cols;
}

const GoldenArray* GoldenSet::Find(std::string_view array) const {
  const auto found = arrays.find(array);
  return found == arrays.end() ? nullptr : &found->second;
}

std::vector<std::string> FindGoldenPrompts(const std::string& dir, const std::string& name,
                                           const std::string& mode) {
  const std::string prefix = name + "." + mode + ".", suffix = ".json";
  std::vector<std::string> prompts;
  std::error_code failed;
  std::filesystem::directory_iterator entry(dir, failed);
  for (; !failed && entry != std::filesystem::directory_iterator(); entry.increment(failed)) {
    const std::string file = entry->path().filename().string();
    if (file.size() <= prefix.size() + suffix.size() || !file.starts_with(prefix) ||
        !file.ends_with(suffix)) {
      continue;
    }
    prompts.push_back(file.substr(prefix.size(), file.size() - prefix.size() - suffix.size()));
  }
  if (failed) throw Error(Code::kIo, fmt::format("{}: cannot be read: {}", dir, failed.message()));
  if (prompts.empty()) {
    throw Error(Code::kNotFound,
                fmt::format("{}: expected golden sets {}*{}, found none", dir, prefix, suffix));
  }
  std::sort(prompts.begin(), prompts.end());
  return prompts;
}

GoldenSet LoadGoldenSet(const std::string& dir, const std::string& name, const std::string& mode,
                        const std::string& prompt_name, int64_t vocab_size) {
  GoldenSet set;
  set.name = name;
  set.mode = mode;
  set.prompt_name = prompt_name;
  const std::string stem = dir + "/" + set.Title();
  ReadRecord(stem + ".json", vocab_size, &set);
  ReadArrays(stem + ".safetensors", &set);
  return set;
}

}  // namespace deepinfer
