// Test support: directories that vanish and safetensors files written by hand.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/shape_table.h"

namespace deepinfer::testing {

class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "deepinfer-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary directory");
    path_ = pattern;
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct TestTensor {
  std::string name, dtype;
  std::vector<int64_t> shape;
};

inline std::vector<TestTensor> TestTensors(const ModelConfig& config) {
  std::vector<TestTensor> list;
  for (const TensorSpec& t : ShapeTable(config)) {
    list.push_back({t.name, std::string(t.dtype), {t.dims().begin(), t.dims().end()}});
  }
  return list;
}

inline int64_t Bytes(const TestTensor& t) {
  int64_t bytes = StoredTypeBytes(t.dtype);
  for (const int64_t n : t.shape) bytes *= n;
  return bytes;
}

// 8 length bytes and the JSON text.
inline std::string Framed(const std::string& json) {
  std::string text(8, '\0');
  for (size_t i = 0; i < 8; ++i) text[i] = static_cast<char>(json.size() >> (8 * i));
  return text + json;
}

inline std::string Entry(const TestTensor& t, int64_t begin, int64_t end) {
  std::string shape;
  for (const int64_t n : t.shape) shape += (shape.empty() ? "" : ",") + std::to_string(n);
  return "\"" + t.name + "\":{\"dtype\":\"" + t.dtype + "\",\"shape\":[" + shape +
         "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

// Writes a file whose tensor bytes are holes (zeros) and returns the file offset of every tensor.
inline std::vector<int64_t> WriteSparse(const std::string& path,
                                        const std::vector<TestTensor>& tensors) {
  std::string json = "{\"__metadata__\":{\"format\":\"pt\"}";
  std::vector<int64_t> starts;
  int64_t offset = 0;
  for (const TestTensor& t : tensors) {
    starts.push_back(offset);
    json += "," + Entry(t, offset, offset + Bytes(t));
    offset += Bytes(t);
  }
  const std::string head = Framed(json + "}");
  WriteText(path, head);
  if (truncate(path.c_str(), static_cast<off_t>(head.size()) + offset) != 0) {
    throw std::runtime_error(path + ": the file system cannot hold a sparse file of this size");
  }
  for (int64_t& start : starts) start += static_cast<int64_t>(head.size());
  return starts;
}

// The message of the Error that `run` throws, or "accepted".
template <class Function>
std::string Refusal(Function run) {
  try {
    run();
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

}  // namespace deepinfer::testing
