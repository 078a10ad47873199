// DamagedModel: for tests.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/types.h"

namespace deepinfer {

inline constexpr const char* kDemoModel = DI_SOURCE_DIR "/models/demo";

// A copy of the demo model in which some bytes are others.
class DamagedModel {
 public:
  DamagedModel()
      : dir_(testing::TempDir() + "/deepinfer_damaged_model." + std::to_string(getpid())) {
    std::filesystem::remove_all(dir_);
    std::filesystem::copy(kDemoModel, dir_);
    for (const auto& file : std::filesystem::directory_iterator(dir_)) {
      std::filesystem::permissions(file, std::filesystem::perms::owner_write,
                                   std::filesystem::perm_options::add);
    }
  }
  ~DamagedModel() { std::filesystem::remove_all(dir_); }
  DamagedModel(const DamagedModel&) = delete;
  DamagedModel& operator=(const DamagedModel&) = delete;

  // Overwrites a tensor from byte `at` on; without bytes, all of it with `fill`.
  void Overwrite(const std::string& tensor, uint64_t at, std::string bytes, char fill = '\xff') {
    using nlohmann::json;
    std::ifstream index(dir_ + "/model.safetensors.index.json");
    const std::string shard = json::parse(index)["weight_map"][tensor];
    std::fstream file(dir_ + "/" + shard, std::ios::in | std::ios::out | std::ios::binary);
    uint64_t header_bytes;
    file.read(reinterpret_cast<char*>(&header_bytes), 8);
    std::string header(header_bytes, ' ');
    file.read(header.data(), static_cast<std::streamsize>(header_bytes));
    const json offsets = json::parse(header)[tensor]["data_offsets"];
    const uint64_t begin = offsets[0], end = offsets[1];
    if (bytes.empty()) bytes.assign(end - begin, fill);
    file.seekp(static_cast<std::streamoff>(8 + header_bytes + begin + at));
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }

  // Embedding of a token: NaN.
  void DamageToken(TokenId token) {
    constexpr uint64_t kRowBytes = 192 * 2;
    std::string nan;
    while (nan.size() < kRowBytes) nan += "\xc0\x7f";
    Overwrite("embed.weight", static_cast<uint64_t>(token) * kRowBytes, nan);
  }
  // Scales of an expert: NaN, or another byte.
  void DamageExpert(const std::string& layer, int64_t expert, char scale = '\xff') {
    Overwrite(layer + ".ffn.experts." + std::to_string(expert) + ".w1.scale", 0, "", scale);
  }

  const std::string& dir() const { return dir_; }

 private:
  std::string dir_;
};

}  // namespace deepinfer
