#include "config/options.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <string_view>

#include "base/error.h"

extern char** environ;

namespace deepinfer {
namespace {

constexpr std::string_view kPrefix = "DEEPINFER_";

int64_t ParseCount(std::string_view name, std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw Error(Code::kInvalid, fmt::format("{}: expected an integer, found \"{}\"", name, text));
  }
  return value;
}

void CheckRange(std::string_view name, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high) {
    throw Error(Code::kInvalid, fmt::format("--{}: expected an integer from {} to {}, found {}",
                                            name, low, high, value));
  }
}

void CheckOneOf(std::string_view name, std::string_view value,
                std::initializer_list<std::string_view> known) {
  if (std::find(known.begin(), known.end(), value) != known.end()) return;
  std::string list;
  for (const std::string_view k : known) list += fmt::format("{}{}", list.empty() ? "" : ", ", k);
  throw Error(Code::kInvalid, fmt::format("--{}: expected {}{}, found \"{}\"", name,
                                          known.size() > 1 ? "one of " : "", list, value));
}

}  // namespace

void EngineOptions::ApplyEnvironment() {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!text.starts_with(kPrefix)) continue;
    const size_t equals = std::min(text.find('='), text.size());
    const std::string_view name = text.substr(0, equals);
    const std::string_view value = text.substr(std::min(equals + 1, text.size()));
    if (name == "DEEPINFER_MODEL") {
      model = value;
    } else if (name == "DEEPINFER_ISA") {
      isa = value;
    } else if (name == "DEEPINFER_THREADS") {
      threads = ParseCount(name, value);
    } else {
      throw Error(
          Code::kInvalid,
          fmt::format(
              "{}: expected an environment variable out of DEEPINFER_MODEL, DEEPINFER_ISA and "
              "DEEPINFER_THREADS, found this unknown one",
              name));
    }
  }
}

void EngineOptions::Validate() const {
  CheckRange("max-model-len", max_model_len, 0, int64_t{1} << 30);
  CheckRange("max-num-batched-tokens", max_num_batched_tokens, 1, 65536);
  CheckRange("max-num-seqs", max_num_seqs, 1, 65536);
  CheckRange("num-kv-blocks", num_kv_blocks, 0, int64_t{1} << 31);
  CheckRange("prefix-cache-mib", prefix_cache_mib, 0, int64_t{1} << 30);
  CheckRange("threads", threads, 0, 1024);
  CheckRange("rank-timeout", rank_timeout_s, 1, 86400);
  CheckRange("tensor-parallel-size", tensor_parallel_size, 0, 1024);
  CheckRange("cp", batch_ranks, 0, 1024);
  CheckRange("ep", expert_parallel_size, 0, 1024);
  CheckOneOf("isa", isa, {"auto", "generic", "avx2", "avx512", "amx"});
  CheckOneOf("numerics", numerics, {"release", "fp32", "trn2"});
  CheckOneOf("routing", routing, {"model", "uniform"});
  if (routing_overlap != -1 && !(routing_overlap >= 0 && routing_overlap <= 1)) {
    throw Error(Code::kInvalid, fmt::format("--routing-overlap: expected a number from 0 to 1, "
                                            "found {}",
                                            routing_overlap));
  }
  if (routing_overlap >= 0 && routing != "uniform")
    throw Error(Code::kInvalid, "--routing-overlap: expected --routing uniform with it");
  CheckOneOf("reduce", reduce, {"exact", "fast"});
  CheckOneOf("engram", engram, {"host", "rows-fp8", "rows-bf16"});
  CheckOneOf("speculative", speculative, {"off", "exact", "rejection"});
  CheckOneOf("draft-depth", draft_depth, {"auto", "fixed"});
  CheckRange("num-speculative-tokens", num_speculative_tokens, -1, 64);
  if (prefill_slowdown != 0 && !(prefill_slowdown >= 1.05 && prefill_slowdown <= 1000)) {
    throw Error(Code::kInvalid,
                fmt::format("--prefill-slowdown: expected 0 or a ratio from 1.05 to 1000, found {}",
                            prefill_slowdown));
  }
  if (max_num_batched_tokens < max_num_seqs) {
    throw Error(
        Code::kInvalid,
        fmt::format("--max-num-batched-tokens: expected at least --max-num-seqs = {}, found {}",
                    max_num_seqs, max_num_batched_tokens));
  }
}

int64_t NumKvBlocks(const EngineOptions& options, int64_t max_model_len, int64_t block_tokens,
                    int64_t block_bytes) {
  if (options.num_kv_blocks > 0) return options.num_kv_blocks;
  const int64_t one = (max_model_len + block_tokens - 1) / block_tokens;
  return std::max(one, std::min(one * options.max_num_seqs, kDefaultKvBytes / block_bytes));
}

bool StartedByMpi() {
  return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMI_SIZE") != nullptr;
}

std::string HubCacheDir() {
  if (const char* cache = std::getenv("HF_HUB_CACHE"); cache != nullptr && *cache != '\0')
    return cache;
  if (const char* home = std::getenv("HF_HOME"); home != nullptr && *home != '\0')
    return std::string(home) + "/hub";
  const char* home = std::getenv("HOME");
  return home == nullptr || *home == '\0' ? "" : std::string(home) + "/.cache/huggingface/hub";
}

}  // namespace deepinfer
