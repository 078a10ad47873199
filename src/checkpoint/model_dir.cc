#include "checkpoint/model_dir.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/read_file.h"

namespace deepinfer {
namespace {

bool IsHubName(const std::string& model) {
  const size_t slash = model.find('/');
  return slash != std::string::npos && slash > 0 && slash + 1 < model.size() &&
         model.find('/', slash + 1) == std::string::npos && model.front() != '.' &&
         model[slash + 1] != '.';
}

// A snapshot is named by a commit hash; anything else in refs/main must not become a path.
bool IsRevision(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](unsigned char c) { return std::isalnum(c) != 0; });
}

}  // namespace

std::string ResolveModelDir(const std::string& model, const std::string& cache_dir) {
  std::error_code ignored;
  if (model.empty())
    throw Error(Code::kInvalid, "--model: expected a directory or org/name, found nothing");
  if (std::filesystem::is_directory(model, ignored)) return model;
  if (!IsHubName(model) || cache_dir.empty() || std::filesystem::exists(model, ignored)) {
    throw Error(Code::kNotFound, fmt::format("{}: expected a model directory, found none", model));
  }
  const size_t slash = model.find('/');
  const std::string repo =
      fmt::format("{}/models--{}--{}", cache_dir, model.substr(0, slash), model.substr(slash + 1));
  const std::string ref = repo + "/refs/main";
  if (!std::filesystem::is_regular_file(ref, ignored)) {
    throw Error(
        Code::kNotFound,
        fmt::format("{}: expected a directory of that name or {} in the hub cache, found neither",
                    model, ref));
  }
  std::string revision = ReadFile(ref, 4096);
  while (!revision.empty() && (revision.back() == '\n' || revision.back() == '\r'))
    revision.pop_back();
  const std::string snapshot = repo + "/snapshots/" + revision;
  if (!IsRevision(revision) || !std::filesystem::is_directory(snapshot, ignored)) {
    throw Error(
        Code::kNotFound,
        fmt::format("{}: expected the snapshot that {} names, found no directory in {}/snapshots",
                    model, ref, repo));
  }
  return snapshot;
}

}  // namespace deepinfer
