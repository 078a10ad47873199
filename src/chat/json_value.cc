#include "chat/json_value.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "base/error.h"

namespace deepinfer {
namespace {

constexpr size_t kMaxDepth = 200;

// Builds a JsonValue from the parser's events.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return Put({}); }
  bool boolean(bool value) override {
    JsonValue v;
    v.kind = JsonValue::Kind::kBool;
    v.boolean = value;
    return Put(std::move(v));
  }
  bool number_integer(number_integer_t value) override { return Number(std::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override { return Number(std::to_string(value)); }
  bool number_float(number_float_t value, const string_t& literal) override {
    // An integer beyond 64 bits arrives here too; Python keeps its digits.
    const bool integer = literal.find_first_of(".eE") == std::string::npos;
    return Number(integer ? literal : PythonFloat(value));
  }
  bool string(string_t& value) override {
    JsonValue v;
    v.kind = JsonValue::Kind::kString;
    v.text = std::move(value);
    return Put(std::move(v));
  }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return Open(JsonValue::Kind::kObject); }
  bool start_array(size_t) override { return Open(JsonValue::Kind::kArray); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& key) override {
    Frame& frame = open_.back();
    const auto [it, inserted] = frame.index.emplace(key, frame.value.items.size());
    if (inserted) {
      frame.value.keys.push_back(std::move(key));
      frame.value.items.emplace_back();
    }
    frame.slot = it->second;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    error_ = fmt::format("not valid JSON near byte {}", position);
    return false;
  }

  JsonValue& result() { return result_; }
  const std::string& error() const { return error_; }

 private:
  struct Frame {
    JsonValue value;
    std::unordered_map<std::string, size_t> index;  // keys of an object
    size_t slot = 0;                                // where its next value goes
  };

  bool Number(std::string text) {
    JsonValue v;
    v.kind = JsonValue::Kind::kNumber;
    v.text = std::move(text);
    return Put(std::move(v));
  }

  bool Put(JsonValue value) {
    if (open_.empty()) {
      result_ = std::move(value);
    } else if (open_.back().value.is_array()) {
      open_.back().value.items.push_back(std::move(value));
    } else {
      open_.back().value.items[open_.back().slot] = std::move(value);
    }
    return true;
  }

  bool Open(JsonValue::Kind kind) {
    if (open_.size() == kMaxDepth) {
      error_ = fmt::format("nested more than {} levels deep", kMaxDepth);
      return false;
    }
    open_.emplace_back();
    open_.back().value.kind = kind;
    return true;
  }

  bool Close() {
    JsonValue value = std::move(open_.back().value);
    open_.pop_back();
    return Put(std::move(value));
  }

  std::vector<Frame> open_;
  JsonValue result_;
  std::string error_;
};

void DumpString(std::string_view text, std::string* out) {
  out->push_back('"');
  AppendJsonCharacters(text, out);
  out->push_back('"');
}

void Dump(const JsonValue& value, std::string* out) {
  switch (value.kind) {
    case JsonValue::Kind::kNull:
      *out += "null";
      return;
    case JsonValue::Kind::kBool:
      *out += value.boolean ? "true" : "false";
      return;
    case JsonValue::Kind::kNumber:
      *out += value.text;
      return;
    case JsonValue::Kind::kString:
      DumpString(value.text, out);
      return;
    case JsonValue::Kind::kArray:
    case JsonValue::Kind::kObject:
      break;
  }
  *out += value.is_array() ? '[' : '{';
  for (size_t i = 0; i < value.items.size(); ++i) {
    if (i > 0) *out += ", ";
    if (value.is_object()) {
      DumpString(value.keys[i], out);
      *out += ": ";
    }
    Dump(value.items[i], out);
  }
  *out += value.is_array() ? ']' : '}';
}

}  // namespace

const JsonValue* JsonValue::Find(std::string_view key) const {
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] == key) return items[i].is_null() ? nullptr : &items[i];
  }
  return nullptr;
}

std::optional<int64_t> JsonValue::AsInteger() const {
  int64_t value = 0;
  if (kind != Kind::kNumber) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

JsonValue ParseJson(std::string_view text, const std::string& what) {
  Builder builder;
  if (!nlohmann::json::sax_parse(text, &builder))
    throw Error(Code::kInvalid, what + ": " + builder.error());
  return std::move(builder.result());
}

std::optional<JsonValue> TryParseJson(std::string_view text) {
  Builder builder;
  if (!nlohmann::json::sax_parse(text, &builder)) return std::nullopt;
  return std::move(builder.result());
}

void AppendJsonCharacters(std::string_view text, std::string* out) {
  for (const char c : text) {
    switch (c) {
      case '"':
        *out += "\\\"";
        break;
      case '\\':
        *out += "\\\\";
        break;
      case '\n':
        *out += "\\n";
        break;
      case '\r':
        *out += "\\r";
        break;
      case '\t':
        *out += "\\t";
        break;
      case '\b':
        *out += "\\b";
        break;
      case '\f':
        *out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          *out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          out->push_back(c);
        }
    }
  }
}

std::string DumpJson(const JsonValue& value) {
  std::string out;
  Dump(value, &out);
  return out;
}

std::string PythonFloat(double value) {
  // Shortest digits as d.ddde+xx, then placed as Python does: an exponent below 1e-4 and from 1e16
  // on.
  char buffer[40] = {};
  const auto result =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(result.ptr - buffer));
  const size_t e = text.find('e');
  const int exponent = std::atoi(buffer + e + 1);
  const bool negative = text[0] == '-';
  std::string digits;
  for (const char c : text.substr(negative, e - negative)) {
    if (c != '.') digits.push_back(c);
  }
  std::string out = negative ? "-" : "";
  const auto n = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (n > 1) out += "." + digits.substr(1);
    return out + fmt::format("e{}{:02d}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return out + "0." + std::string(-exponent - 1, '0') + digits;
  if (n <= exponent + 1) return out + digits + std::string(exponent + 1 - n, '0') + ".0";
  return out + digits.substr(0, exponent + 1) + "." + digits.substr(exponent + 1);
}

}  // namespace deepinfer
