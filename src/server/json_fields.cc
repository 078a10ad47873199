#include "server/json_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace deepinfer {

std::string Shown(const JsonValue& value) {
  constexpr size_t kMost = 80;
  std::string text = DumpJson(value);
  if (text.size() <= kMost) return text;
  size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

std::vector<TokenId> ReadTokenIds(const JsonValue& list, std::string_view name) {
  std::vector<TokenId> ids;
  for (const JsonValue& item : list.items) {
    const std::optional<int64_t> id = item.AsInteger();
    if (!list.is_array() || !id || *id < 0 || *id > INT32_MAX) {
      throw Error(Code::kInvalid,
                  fmt::format("{}: expected a list of token ids, found {}", name, Shown(list)));
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

JsonFields::JsonFields(const JsonValue& object, std::string prefix)
    : object_(object), prefix_(std::move(prefix)), taken_(object.keys.size()) {
  if (!object.is_object()) {
    const std::string name = prefix_.empty() ? "request" : prefix_.substr(0, prefix_.size() - 1);
    throw Error(Code::kInvalid,
                fmt::format("{}: expected an object, found {}", name, Shown(object)));
  }
}

void JsonFields::Refuse(std::string_view name, std::string_view expected,
                        const JsonValue& found) const {
  throw Error(Code::kInvalid,
              fmt::format("{}{}: expected {}, found {}", prefix_, name, expected, Shown(found)));
}

const JsonValue* JsonFields::Take(std::string_view name) {
  const auto found = std::ranges::find(object_.keys, name);
  if (found == object_.keys.end()) return nullptr;
  const auto i = static_cast<size_t>(found - object_.keys.begin());
  taken_[i] = true;
  return object_.items[i].is_null() ? nullptr : &object_.items[i];
}

const JsonValue* JsonFields::TakeObject(std::string_view name) {
  const JsonValue* value = Take(name);
  if (value != nullptr && !value->is_object()) Refuse(name, "an object", *value);
  return value;
}

std::optional<bool> JsonFields::TakeBool(std::string_view name) {
  const JsonValue* value = Take(name);
  if (value == nullptr) return std::nullopt;
  if (value->kind != JsonValue::Kind::kBool) Refuse(name, "true or false", *value);
  return value->boolean;
}

std::optional<int64_t> JsonFields::TakeInteger(std::string_view name, int64_t low, int64_t high) {
  const JsonValue* value = Take(name);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> number = value->AsInteger();
  if (!number || *number < low || *number > high)
    Refuse(name, fmt::format("an integer from {} to {}", low, high), *value);
  return number;
}

std::optional<double> JsonFields::TakeReal(std::string_view name) {
  const JsonValue* value = Take(name);
  if (value == nullptr) return std::nullopt;
  if (value->kind != JsonValue::Kind::kNumber) Refuse(name, "a number", *value);
  double number = 0;
  const std::string& text = value->text;
  if (std::from_chars(text.data(), text.data() + text.size(), number).ec != std::errc())
    Refuse(name, "a number of double range", *value);
  return number;
}

std::optional<std::string> JsonFields::TakeString(std::string_view name) {
  const JsonValue* value = Take(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) Refuse(name, "a string", *value);
  return value->text;
}

std::optional<std::vector<TokenId>> JsonFields::TakeIds(std::string_view name) {
  const JsonValue* value = Take(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) Refuse(name, "a list of token ids", *value);
  return ReadTokenIds(*value, fmt::format("{}{}", prefix_, name));
}

void JsonFields::RefuseRest() const {
  for (size_t i = 0; i < taken_.size(); ++i) {
    if (taken_[i] || object_.items[i].is_null()) continue;
    std::string name = object_.keys[i].substr(0, 80);
    throw Error(Code::kUnsupported,
                fmt::format("{}{}: this field is not supported", prefix_, name));
  }
}

}  // namespace deepinfer
