// JSON as the prompt format needs it: key order kept, numbers printed as Python prints them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer {

struct JsonValue {
  enum class Kind { kNull, kBool, kNumber, kString, kArray, kObject };
  Kind kind = Kind::kNull;
  bool boolean = false;
  std::string text;  // kString: the characters, UTF-8; kNumber: as Python's repr prints it
  std::vector<JsonValue> items;   // kArray: elements; kObject: values
  std::vector<std::string> keys;  // kObject: one per item, unique, in order of first appearance

  bool is_null() const { return kind == Kind::kNull; }
  bool is_string() const { return kind == Kind::kString; }
  bool is_array() const { return kind == Kind::kArray; }
  bool is_object() const { return kind == Kind::kObject; }
  // Value of a key of an object; null pointer when this is no object, the key is absent or its
  // value is null.
  const JsonValue* Find(std::string_view key) const;
  // The number when it is written as an integer and fits.
  std::optional<int64_t> AsInteger() const;
};

// Strict JSON; of a repeated key the last value counts, at the first place. Integers keep all their
// digits. Throws Error(kInvalid) that begins with `what` for malformed text, nesting beyond 200
// levels and floats beyond double range.
JsonValue ParseJson(std::string_view text, const std::string& what);
// The same, nothing instead of an error.
std::optional<JsonValue> TryParseJson(std::string_view text);

// Python's json.dumps(value, ensure_ascii=False): ", " and ": ", nothing escaped but quotes,
// backslashes and controls.
std::string DumpJson(const JsonValue& value);
// What it writes between the quotes of a string.
void AppendJsonCharacters(std::string_view text, std::string* out);

// Python's repr of a finite float: shortest digits that read back the same, 1e-07, 1e+16, 5.0.
std::string PythonFloat(double value);

}  // namespace deepinfer
