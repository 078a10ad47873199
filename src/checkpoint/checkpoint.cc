#include "checkpoint/checkpoint.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "base/arena.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/read_file.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/random_tensors.h"
#include "checkpoint/safetensors.h"

namespace deepinfer {
namespace {

constexpr char kIndexName[] = "model.safetensors.index.json";
constexpr char kLoneName[] = "model.safetensors";
constexpr int64_t kMaxIndexBytes = int64_t{256} << 20;

using Index = std::vector<std::pair<std::string, std::string>>;

bool Exists(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

void CheckDirectory(const std::string& dir) {
  struct stat info;
  if (stat(dir.c_str(), &info) != 0) {
    throw Error(errno == ENOENT ? Code::kNotFound : Code::kIo,
                fmt::format("{}: expected a model directory, cannot be read: {}", dir,
                            std::strerror(errno)));
  }
  if (!S_ISDIR(info.st_mode))
    throw Error(Code::kIo, fmt::format("{}: expected a directory, found a file", dir));
}

std::string ShapeText(std::string_view dtype, std::span<const int64_t> shape) {
  return fmt::format("{} [{}]", dtype, fmt::join(shape, ", "));
}

// Packed fp4 and scales may be stored as plain bytes (spec 02 section 4.1).
bool SameDtype(std::string_view expected, std::string_view found) {
  return expected == found || (found == "U8" && (expected == "I8" || expected == "F8_E8M0"));
}

std::string ScaleName(std::string_view name) {
  constexpr std::string_view kSuffix = ".weight";
  const std::string_view base =
      name.ends_with(kSuffix) ? name.substr(0, name.size() - kSuffix.size()) : name;
  return std::string(base) + ".scale";
}

}  // namespace

struct Checkpoint::Impl {
  std::string dir;
  std::vector<std::string> shards;
  std::vector<MappedFile> files;
  Arena memory;  // of a checkpoint without files
  std::vector<StoredTensor> tensors;
  std::unordered_map<std::string_view, size_t> by_name;
  std::vector<std::string> unused;
  int64_t total_bytes = 0;

  const StoredTensor* Find(std::string_view name) const {
    const auto it = by_name.find(name);
    return it == by_name.end() ? nullptr : &tensors[it->second];
  }
  void LoadShards();
  void IndexNames();
  void CheckIndex(const Index& index) const;
  void CheckInventory(const ModelConfig& config, const Index* index);
  void AdviseReading() const;
};

void Checkpoint::Impl::LoadShards() {
  for (size_t s = 0; s < shards.size(); ++s) {
    const std::string path = dir + "/" + shards[s];
    files.emplace_back(path);
    const uint8_t* data = files.back().data();
    SafetensorsHeader header = ParseSafetensorsHeader(data, files.back().size(), path);
    for (HeaderTensor& t : header.tensors) {
      total_bytes += t.end - t.begin;
      tensors.push_back({std::move(t.name), std::move(t.dtype), std::move(t.shape),
                         static_cast<int>(s), data + header.data_start + t.begin, t.end - t.begin});
    }
  }
}

void Checkpoint::Impl::IndexNames() {
  by_name.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto [it, is_new] = by_name.emplace(tensors[i].name, i);
    if (is_new) continue;
    throw Error(Code::kCorrupt, fmt::format("{}: expected in one shard, found in {} and {}",
                                            Printable(tensors[i].name),
                                            shards[static_cast<size_t>(tensors[it->second].shard)],
                                            shards[static_cast<size_t>(tensors[i].shard)]));
  }
}

// Every tensor of the index lies in the shard the index names.
void Checkpoint::Impl::CheckIndex(const Index& index) const {
  for (const auto& [name, shard] : index) {
    const StoredTensor* t = Find(name);
    if (t != nullptr && shards[static_cast<size_t>(t->shard)] == shard) continue;
    throw Error(
        Code::kNotFound,
        fmt::format(
            "{}: expected in {} by {}, found {}", Printable(name), shard, kIndexName,
            t == nullptr ? "no such tensor" : "it in " + shards[static_cast<size_t>(t->shard)]));
  }
}

// Stored tensors against the table of the config: the first difference is an Error, the rest only
// counted.
void Checkpoint::Impl::CheckInventory(const ModelConfig& config, const Index* index) {
  std::unordered_set<std::string_view> listed;
  if (index != nullptr) {
    listed.reserve(index->size());
    for (const auto& entry : *index) listed.insert(entry.first);
  }
  std::vector<bool> used(tensors.size());
  std::string first;
  Code code = Code::kNotFound;
  int64_t differences = 0;
  for (const TensorSpec& spec : ShapeTable(config)) {
    const StoredTensor* t = Find(spec.name);
    if (t != nullptr) used[static_cast<size_t>(t - tensors.data())] = true;
    const std::string_view file =
        t == nullptr ? "" : std::string_view(shards[static_cast<size_t>(t->shard)]);
    std::string found;
    if (t == nullptr) {
      found = "no such tensor in " + dir;
    } else if (!SameDtype(spec.dtype, t->dtype) || !std::ranges::equal(spec.dims(), t->shape)) {
      found = fmt::format("{} in {}", ShapeText(t->dtype, t->shape), file);
    } else if (index != nullptr && !listed.contains(spec.name)) {
      found = fmt::format("it in {} but not in {}", file, kIndexName);
    } else {
      continue;
    }
    if (++differences > 1) continue;
    first = fmt::format("{}: expected {}, found {}", spec.name, ShapeText(spec.dtype, spec.dims()),
                        found);
    code = t == nullptr ? Code::kNotFound : Code::kShape;
  }
  if (differences > 1) first += fmt::format(" (and {} more tensors differ)", differences - 1);
  if (differences > 0) throw Error(code, first);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!used[i]) unused.push_back(tensors[i].name);
  }
}

// Weights are read from front to back. Of an Engram table a step needs a few rows; a page of 2 MiB
// around each would take 2000 times as long to come from the disk.
void Checkpoint::Impl::AdviseReading() const {
  for (const MappedFile& file : files) Advise(file.data(), file.size(), Reading::kInOrder);
  for (const StoredTensor& t : tensors) {
    if (t.name.find(".engram.embed.") != std::string::npos)
      Advise(t.data, t.bytes, Reading::kAtRandom);
  }
}

Checkpoint::Checkpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

Checkpoint Checkpoint::Open(const std::string& dir, const ModelConfig& config) {
  CheckDirectory(dir);
  auto impl = std::make_unique<Impl>();
  impl->dir = dir;
  const std::string index_path = dir + "/" + kIndexName;
  const bool has_index = Exists(index_path);
  Index index;
  if (has_index) {
    index = ParseIndex(ReadFile(index_path, kMaxIndexBytes), index_path);
    std::set<std::string> names;
    for (const auto& entry : index) names.insert(entry.second);
    impl->shards.assign(names.begin(), names.end());
  } else if (Exists(dir + "/" + kLoneName)) {
    impl->shards = {kLoneName};
  } else {
    throw Error(Code::kNotFound,
                fmt::format("{}: expected {} or {}, found neither", dir, kIndexName, kLoneName));
  }
  impl->LoadShards();
  impl->IndexNames();
  impl->CheckIndex(index);
  impl->CheckInventory(config, has_index ? &index : nullptr);
  impl->AdviseReading();
  return Checkpoint(std::move(impl));
}

Checkpoint Checkpoint::Random(const ModelConfig& config, uint64_t seed, int threads,
                              const OwnBytes& own) {
  auto impl = std::make_unique<Impl>();
  const std::vector<TensorSpec> specs = ShapeTable(config);
  std::vector<RandomTensor> fill;
  for (const TensorSpec& spec : specs) {
    fill.push_back({&spec, nullptr, own ? own(spec) : Range{0, spec.bytes()}});
    impl->total_bytes += fill.back().own.size();
  }
  CheckMemory("synthetic weights (fewer layers, stages, experts or words take less)",
              impl->total_bytes);
  impl->memory = Arena("synthetic weights", impl->total_bytes);
  auto* next = reinterpret_cast<uint8_t*>(impl->memory.base());
  impl->shards = {"memory"};
  for (RandomTensor& t : fill) {
    t.data = next - t.own.begin;
    next += t.own.size();
    impl->tensors.push_back({t.spec->name,
                             std::string(t.spec->dtype),
                             {t.spec->dims().begin(), t.spec->dims().end()},
                             0,
                             t.data,
                             t.spec->bytes()});
  }
  impl->IndexNames();
  FillRandom(fill, seed, threads);
  return Checkpoint(std::move(impl));
}

const StoredTensor* Checkpoint::Find(std::string_view name) const { return impl_->Find(name); }
std::span<const StoredTensor> Checkpoint::tensors() const { return impl_->tensors; }
std::span<const std::string> Checkpoint::shards() const { return impl_->shards; }
std::span<const std::string> Checkpoint::unused() const { return impl_->unused; }
int64_t Checkpoint::total_bytes() const { return impl_->total_bytes; }

WeightView Checkpoint::Get(std::string_view name) const {
  const StoredTensor* t = Find(name);
  if (t == nullptr)
    throw Error(Code::kNotFound,
                fmt::format("{}: expected in the checkpoint, found no such tensor", name));
  WeightView view{};
  view.data = t->data;
  const std::vector<int64_t>& shape = t->shape;
  if (shape.empty() || shape.size() > 2) {
    throw Error(Code::kShape,
                fmt::format("{}: expected one or two dimensions, found {}", name, shape.size()));
  }
  view.rows = shape.size() == 2 ? shape[0] : 1;
  view.cols = shape.back();
  view.row_stride_bytes = view.cols * StoredTypeBytes(t->dtype);
  if (t->dtype == "BF16" || t->dtype == "F32") {
    view.dtype = t->dtype == "BF16" ? DType::kBf16 : DType::kF32;
    return view;
  }
  const bool fp4 = t->dtype == "I8" || t->dtype == "U8";
  if ((!fp4 && t->dtype != "F8_E4M3") || name.ends_with(".scale")) {
    throw Error(Code::kInvalid,
                fmt::format("{}: expected a weight, found {}", name, ShapeText(t->dtype, shape)));
  }
  if (fp4) view.cols *= 2;
  const StoredTensor* scale = Find(ScaleName(name));
  const std::vector<int64_t> per_row = {view.rows, view.cols / 32};
  const std::vector<int64_t> per_tile = {(view.rows + 31) / 32, (view.cols + 31) / 32};
  const bool is_row = scale != nullptr && scale->shape == per_row && view.cols % 32 == 0;
  const bool is_tile = !fp4 && scale != nullptr && scale->shape == per_tile;
  if (!is_row && !is_tile) {
    throw Error(
        Code::kShape,
        fmt::format("{}: expected {} or {}, found {}", ScaleName(name),
                    ShapeText("F8_E8M0", per_row), ShapeText("F8_E8M0", per_tile),
                    scale == nullptr ? "no such tensor" : ShapeText(scale->dtype, scale->shape)));
  }
  view.scale = scale->data;
  view.scale_stride_bytes = scale->shape[1];
  view.dtype = fp4 ? DType::kFp4Row32 : is_tile ? DType::kFp8Tile32 : DType::kFp8Row32;
  return view;
}

WeightView Checkpoint::Rows(std::string_view name, int64_t begin, int64_t end) const {
  WeightView view = Get(name);
  if (begin < 0 || end < begin || end > view.rows) {
    throw Error(Code::kInvalid, fmt::format("{}: expected rows inside [0, {}), found [{}, {})",
                                            name, view.rows, begin, end));
  }
  view.rows = end - begin;
  view.data += begin * view.row_stride_bytes;
  if (view.dtype == DType::kFp8Tile32) {
    view.scale += begin / 32 * view.scale_stride_bytes;
    view.scale_row0 = static_cast<int32_t>(begin % 32);
  } else if (view.scale != nullptr) {
    view.scale += begin * view.scale_stride_bytes;
  }
  return view;
}

}  // namespace deepinfer
