#include "checkpoint/safetensors.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "config/shape_table.h"

namespace deepinfer {
namespace {

using nlohmann::json;

constexpr int64_t kMaxHeaderBytes = 100'000'000;  // the limit of the safetensors library
constexpr size_t kMaxRank = 8;
constexpr int kMaxDepth = 16;

[[noreturn]] void Corrupt(const std::string& what, const std::string& sentence) {
  throw Error(Code::kCorrupt, fmt::format("{}: {}", what, sentence));
}

// SAX reader that keeps the depth bounded and refuses every value its subclass does not ask for.
// Both formats consist of objects, arrays, text and non-negative integers.
class Reader : public json::json_sax_t {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  void Run(std::string_view text) {
    json::json_sax_t* sax = this;
    json::sax_parse(text.begin(), text.end(), sax);
  }

 protected:
  virtual void OnKey(const std::string& key) = 0;
  virtual void OnText(const std::string& text) = 0;
  virtual void OnInteger(int64_t value) = 0;
  virtual void OnOther(const char* kind) = 0;  // null, true, false, fractions and negative numbers
  virtual void OnOpen(bool is_object) = 0;     // depth() already counts it
  virtual void OnClose() {}                    // depth() still counts it

  int depth() const { return depth_; }
  const std::string& file() const { return file_; }

 private:
  bool null() override { return OnOther("null"), true; }
  bool boolean(bool) override { return OnOther("a truth value"), true; }
  bool number_integer(number_integer_t) override { return OnOther("a negative number"), true; }
  bool number_float(number_float_t, const string_t&) override {
    return OnOther("a fraction"), true;
  }
  bool binary(binary_t&) override { return OnOther("binary data"), true; }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      Corrupt(file_, fmt::format("expected integers below 2^63, found {}", value));
    }
    return OnInteger(static_cast<int64_t>(value)), true;
  }
  bool string(string_t& value) override { return OnText(value), true; }
  bool key(string_t& value) override { return OnKey(value), true; }
  bool start_object(std::size_t) override { return Open(true); }
  bool start_array(std::size_t) override { return Open(false); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool parse_error(std::size_t position, const std::string&, const json::exception&) override {
    Corrupt(file_, fmt::format("not valid JSON near byte {} of the text", position));
  }

  bool Open(bool is_object) {
    if (++depth_ > kMaxDepth)
      Corrupt(file_, fmt::format("expected at most {} nested levels, found more", kMaxDepth));
    OnOpen(is_object);
    return true;
  }
  bool Close() {
    OnClose();
    --depth_;
    return true;
  }

  const std::string& file_;
  int depth_ = 0;
};

class HeaderReader : public Reader {
 public:
  using Reader::Reader;
  std::vector<HeaderTensor> tensors;

 private:
  enum Field { kNone = 0, kDtype = 1, kShape = 2, kOffsets = 4, kAll = 7 };

  std::string Where() const { return fmt::format("{}: {}", file(), Printable(name_)); }

  void OnKey(const std::string& key) override {
    if (depth() == 1) {
      name_ = key;
      return;
    }
    if (in_metadata_) return;
    field_ = key == "dtype"          ? kDtype
             : key == "shape"        ? kShape
             : key == "data_offsets" ? kOffsets
                                     : kNone;
    if (field_ == kNone || (seen_ & field_) != 0) {
      Corrupt(Where(), fmt::format("expected dtype, shape and data_offsets once each, found {}",
                                   Printable(key)));
    }
    seen_ |= field_;
  }

  void OnText(const std::string& text) override {
    if (in_metadata_) return;
    if (depth() != 2 || field_ != kDtype) Unexpected("text");
    tensors.back().dtype = text;
  }

  void OnInteger(int64_t value) override {
    if (in_metadata_) return;
    if (depth() != 3) Unexpected("an integer");
    if (values_.size() == kMaxRank) Unexpected(fmt::format("more than {} integers", kMaxRank));
    values_.push_back(value);
  }

  void OnOther(const char* kind) override {
    if (!in_metadata_) Unexpected(kind);
  }

  void OnOpen(bool is_object) override {
    if (depth() == 1) {
      if (!is_object) Unexpected("a list");
    } else if (depth() == 2) {
      if (!is_object) Unexpected("a list");
      in_metadata_ = name_ == "__metadata__";
      if (in_metadata_) return;
      seen_ = kNone;
      tensors.emplace_back().name = name_;
    } else if (!in_metadata_) {
      if (is_object || depth() != 3 || (field_ != kShape && field_ != kOffsets))
        Unexpected("a nested value");
      values_.clear();
    }
  }

  void OnClose() override {
    if (depth() == 2) {
      if (!in_metadata_ && seen_ != kAll)
        Corrupt(Where(), "expected dtype, shape and data_offsets, found less");
      in_metadata_ = false;
    }
    if (in_metadata_ || depth() != 3) return;
    if (field_ == kShape) {
      tensors.back().shape = values_;
    } else {
      if (values_.size() != 2)
        Corrupt(Where(), fmt::format("expected two data_offsets, found {}", values_.size()));
      tensors.back().begin = values_[0];
      tensors.back().end = values_[1];
    }
  }

  [[noreturn]] void Unexpected(const std::string& kind) const {
    Corrupt(depth() < 2 ? file() : Where(),
            fmt::format("expected a safetensors header entry, found {}", kind));
  }

  std::string name_;
  bool in_metadata_ = false;
  int field_ = kNone, seen_ = kNone;
  std::vector<int64_t> values_;
};

class IndexReader : public Reader {
 public:
  using Reader::Reader;
  std::vector<std::pair<std::string, std::string>> entries;
  bool has_map = false;

 private:
  bool in_map() const { return depth() >= 2 && top_key_ == "weight_map"; }

  void OnKey(const std::string& key) override {
    if (depth() == 1) {
      top_key_ = key;
    } else if (in_map()) {
      name_ = key;
    }
  }
  void OnText(const std::string& text) override {
    if (!in_map()) return;
    if (text.empty() || text.front() == '.' || text.find('/') != std::string::npos ||
        text.find('\0') != std::string::npos) {
      Corrupt(file(), fmt::format("{}: expected a plain file name, found {}", Printable(name_),
                                  Printable(text)));
    }
    entries.emplace_back(name_, text);
  }
  void OnInteger(int64_t) override { OnOther("an integer"); }
  void OnOther(const char* kind) override {
    if (in_map())
      Corrupt(file(), fmt::format("{}: expected a file name, found {}", Printable(name_), kind));
  }
  void OnOpen(bool is_object) override {
    if (depth() == 1 && !is_object) Corrupt(file(), "expected an object, found a list");
    if (depth() == 2 && top_key_ == "weight_map") {
      if (!is_object || has_map)
        Corrupt(file(), "expected one object weight_map, found another value");
      has_map = true;
    } else if (in_map()) {
      Corrupt(file(),
              fmt::format("{}: expected a file name, found a nested value", Printable(name_)));
    }
  }

  std::string top_key_, name_;
};

// shape times element size, or -1 when it does not fit.
int64_t ShapeBytes(const HeaderTensor& t) {
  int64_t bytes = StoredTypeBytes(t.dtype);
  for (const int64_t n : t.shape) {
    if (__builtin_mul_overflow(bytes, n, &bytes)) return -1;
  }
  return bytes;
}

template <class T, class Name>
void CheckUnique(const std::vector<T>& items, const std::string& file, Name name_of) {
  std::vector<std::string_view> names;
  names.reserve(items.size());
  for (const T& item : items) names.push_back(name_of(item));
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  if (twin != names.end())
    Corrupt(file, fmt::format("{}: expected one entry, found two", Printable(*twin)));
}

// Tensors cover [0, data_bytes) exactly. Sorts them by offset.
void CheckLayout(std::vector<HeaderTensor>& tensors, int64_t data_start, int64_t data_bytes,
                 const std::string& file) {
  for (const HeaderTensor& t : tensors) {
    const std::string where = fmt::format("{}: {}", file, Printable(t.name));
    if (StoredTypeBytes(t.dtype) == 0)
      Corrupt(where, fmt::format("expected a known dtype, found {}", Printable(t.dtype)));
    const int64_t expected = ShapeBytes(t);
    if (t.end < t.begin || expected != t.end - t.begin) {
      Corrupt(where, fmt::format("expected {} bytes for {} [{}], found data_offsets [{}, {}]",
                                 expected < 0 ? "too many" : fmt::format("{}", expected), t.dtype,
                                 fmt::join(t.shape, ", "), t.begin, t.end));
    }
  }
  std::sort(tensors.begin(), tensors.end(), [](const HeaderTensor& a, const HeaderTensor& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  int64_t cursor = 0;
  for (const HeaderTensor& t : tensors) {
    if (t.begin != cursor) {
      Corrupt(fmt::format("{}: {}", file, Printable(t.name)),
              fmt::format(
                  "expected to begin at data offset {} behind the tensor before it, found {} ({})",
                  cursor, t.begin, t.begin < cursor ? "overlap" : "hole"));
    }
    cursor = t.end;
  }
  if (cursor != data_bytes) {
    const std::string last =
        tensors.empty() ? "no tensor" : "last tensor " + Printable(tensors.back().name);
    Corrupt(file, fmt::format("expected {} bytes by its header ({}), found {} bytes",
                              static_cast<uint64_t>(data_start) + static_cast<uint64_t>(cursor),
                              last, data_start + data_bytes));
  }
}

}  // namespace

SafetensorsHeader ParseSafetensorsHeader(const uint8_t* data, int64_t file_bytes,
                                         const std::string& file) {
  if (file_bytes < 8)
    Corrupt(file,
            fmt::format("expected a safetensors file of at least 8 bytes, found {}", file_bytes));
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | data[i];
  if (length > static_cast<uint64_t>(kMaxHeaderBytes)) {
    Corrupt(file, fmt::format("expected a header of at most {} bytes, found {}", kMaxHeaderBytes,
                              length));
  }
  const int64_t data_start = 8 + static_cast<int64_t>(length);
  if (data_start > file_bytes) {
    Corrupt(file, fmt::format("expected at least {} bytes for its header, found {} bytes",
                              data_start, file_bytes));
  }
  HeaderReader reader(file);
  reader.Run({reinterpret_cast<const char*>(data) + 8, static_cast<size_t>(length)});
  CheckUnique(reader.tensors, file,
              [](const HeaderTensor& t) -> std::string_view { return t.name; });
  CheckLayout(reader.tensors, data_start, file_bytes - data_start, file);
  return {std::move(reader.tensors), data_start};
}

std::vector<std::pair<std::string, std::string>> ParseIndex(std::string_view text,
                                                            const std::string& file) {
  IndexReader reader(file);
  reader.Run(text);
  if (!reader.has_map) Corrupt(file, "expected an object weight_map, found none");
  CheckUnique(reader.entries, file,
              [](const auto& entry) -> std::string_view { return entry.first; });
  return std::move(reader.entries);
}

std::string Printable(std::string_view name) {
  constexpr size_t kLongest = 160;
  std::string text(name.substr(0, kLongest));
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return name.size() > kLongest ? text + "..." : text;
}

}  // namespace deepinfer
