#include "chat/coerce.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>

namespace deepinfer {
namespace {

using Kind = JsonValue::Kind;

// Sets of types.
enum : unsigned {
  kNull = 1,
  kInteger = 2,
  kNumber = 4,
  kBoolean = 8,
  kObject = 16,
  kArray = 32,
  kString = 64
};

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

unsigned TypeOfName(const JsonValue& json) {
  static const std::pair<const char*, unsigned> kNames[] = {
      {"null", kNull},     {"none", kNull},     {"integer", kInteger}, {"int", kInteger},
      {"number", kNumber}, {"float", kNumber},  {"double", kNumber},   {"boolean", kBoolean},
      {"bool", kBoolean},  {"object", kObject}, {"dict", kObject},     {"map", kObject},
      {"array", kArray},   {"list", kArray},    {"tuple", kArray},     {"string", kString},
      {"str", kString},    {"text", kString}};
  const std::string name = Lower(json.text);
  for (const auto& [known, type] : kNames) {
    if (json.is_string() && name == known) return type;
  }
  return 0;
}

unsigned TypeOfValue(const JsonValue& value) {
  switch (value.kind) {
    case Kind::kNull:
      return kNull;
    case Kind::kBool:
      return kBoolean;
    case Kind::kNumber:
      return value.text.find_first_of(".e") == std::string::npos ? kInteger : kNumber;
    case Kind::kString:
      return kString;
    case Kind::kArray:
      return kArray;
    case Kind::kObject:
      return kObject;
  }
  return 0;
}

unsigned DeclaredTypes(const JsonValue& schema) {
  unsigned types = 0;
  if (const JsonValue* type = schema.Find("type")) {
    types |= TypeOfName(*type);
    for (const JsonValue& item : type->items) types |= TypeOfName(item);
  }
  if (const JsonValue* members = schema.Find("enum")) {
    for (const JsonValue& member : members->items) types |= TypeOfValue(member);
  }
  for (const char* key : {"anyOf", "oneOf", "allOf"}) {
    if (const JsonValue* alternatives = schema.Find(key)) {
      for (const JsonValue& alternative : alternatives->items) types |= DeclaredTypes(alternative);
    }
  }
  return types;
}

// What a value of this schema may be; string when it does not say.
unsigned Candidates(const JsonValue& schema) {
  const unsigned types = DeclaredTypes(schema);
  return types == 0 ? unsigned{kString} : types;
}

JsonValue Number(std::string text) {
  JsonValue value;
  value.kind = Kind::kNumber;
  value.text = std::move(text);
  return value;
}

std::string_view Stripped(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\r\f\v";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

size_t CountDigits(std::string_view text) {
  return std::min(text.find_first_not_of("0123456789"), text.size());
}

std::optional<JsonValue> ReadInteger(std::string_view text) {
  text = Stripped(text);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || CountDigits(text) != text.size()) return std::nullopt;
  text.remove_prefix(std::min(text.find_first_not_of('0'), text.size() - 1));
  return Number((negative && text != "0" ? "-" : "") + std::string(text));
}

// digits [. digits] [e digits], with at least one digit in front of the exponent.
bool IsDecimal(std::string_view text) {
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  size_t digits = CountDigits(text);
  text.remove_prefix(digits);
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    digits += CountDigits(text);
    text.remove_prefix(CountDigits(text));
  }
  if (digits == 0) return false;
  if (text.empty()) return true;
  if (text[0] != 'e' && text[0] != 'E') return false;
  text.remove_prefix(1);
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  return !text.empty() && CountDigits(text) == text.size();
}

std::optional<JsonValue> ReadNumber(std::string_view text) {
  if (std::optional<JsonValue> integer = ReadInteger(text)) return integer;
  const std::string number(Stripped(text));
  if (!IsDecimal(number)) return std::nullopt;
  const double value = std::strtod(number.c_str(), nullptr);
  if (!std::isfinite(value)) return std::nullopt;
  if (value != std::trunc(value)) return Number(PythonFloat(value));
  return Number(value == 0 ? "0" : fmt::format("{:.0f}", value));
}

std::optional<JsonValue> ReadBoolean(std::string_view text) {
  const std::string lower = Lower(text);
  JsonValue value;
  value.kind = Kind::kBool;
  value.boolean = lower == "true" || lower == "1";
  if (value.boolean || lower == "false" || lower == "0") return value;
  return std::nullopt;
}

// The first of these types that the text can be read as.
std::optional<JsonValue> ReadAs(std::string_view text, unsigned types) {
  if ((types & kNull) != 0 && Lower(text) == "null") return JsonValue();
  std::optional<JsonValue> value;
  if ((types & kInteger) != 0) value = ReadInteger(text);
  if (!value && (types & kNumber) != 0) value = ReadNumber(text);
  if (!value && (types & kBoolean) != 0) value = ReadBoolean(text);
  const bool anything = (types & (kObject | kArray)) != 0 || (types & kString) == 0;
  if (!value && anything) value = TryParseJson(text);
  return value;
}

}  // namespace

JsonValue CoerceValue(JsonValue value, const JsonValue& schema) {
  if (value.is_object()) {
    const JsonValue* properties = schema.Find("properties");
    for (size_t i = 0; properties != nullptr && i < value.keys.size(); ++i) {
      if (const JsonValue* property = properties->Find(value.keys[i]))
        value.items[i] = CoerceValue(std::move(value.items[i]), *property);
    }
    return value;
  }
  if (value.is_array()) {
    const JsonValue* items = schema.Find("items");
    for (JsonValue& item : value.items) {
      if (items != nullptr && items->is_object()) item = CoerceValue(std::move(item), *items);
    }
    return value;
  }
  JsonValue text = std::move(value);
  if (!text.is_string()) text.text = DumpJson(text);
  text.kind = Kind::kString;
  std::optional<JsonValue> read = ReadAs(text.text, Candidates(schema));
  return read ? std::move(*read) : text;
}

bool KeepsStrings(const JsonValue& schema) { return Candidates(schema) == kString; }

bool MayWrap(std::string_view key, const JsonValue& properties) {
  if (key != "arguments" && key != "input") return false;
  return !properties.keys.empty() &&
         std::ranges::find(properties.keys, key) == properties.keys.end();
}

JsonValue UnwrapArguments(JsonValue arguments, const JsonValue& properties) {
  if (arguments.keys.size() != 1 || !MayWrap(arguments.keys[0], properties)) return arguments;
  const JsonValue& value = arguments.items[0];
  std::optional<JsonValue> inner = value.is_string() ? TryParseJson(value.text) : value;
  if (!inner || !inner->is_object()) return arguments;
  for (const std::string& key : inner->keys) {
    if (std::ranges::find(properties.keys, key) == properties.keys.end()) return arguments;
  }
  return std::move(*inner);
}

JsonValue CoerceArguments(JsonValue arguments, const JsonValue& properties) {
  JsonValue schema;
  schema.kind = Kind::kObject;
  schema.keys = {"properties"};
  schema.items = {properties};
  return CoerceValue(UnwrapArguments(std::move(arguments), properties), schema);
}

}  // namespace deepinfer
