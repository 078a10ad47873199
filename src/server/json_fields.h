// Reading the fields of a request: every field is taken by name, and what nobody took is refused.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "chat/json_value.h"

namespace deepinfer {

// A field that is null counts as absent. All functions throw Error(kInvalid) that begins with the
// field's name and says what was expected and found.
class JsonFields {
 public:
  // `object` outlives this. `prefix` stands in front of names in errors ("stream_options.").
  explicit JsonFields(const JsonValue& object, std::string prefix = "");

  // null when absent
  const JsonValue* Take(std::string_view name);
  const JsonValue* TakeObject(std::string_view name);
  std::optional<bool> TakeBool(std::string_view name);
  // An integer of int32 range where no range is given; 5.0 is none.
  std::optional<int64_t> TakeInteger(std::string_view name, int64_t low = INT32_MIN,
                                     int64_t high = INT32_MAX);
  std::optional<double> TakeReal(std::string_view name);
  std::optional<std::string> TakeString(std::string_view name);
  std::optional<std::vector<TokenId>> TakeIds(std::string_view name);

  // Throws Error(kUnsupported) naming the first field that was not taken and is not null.
  void RefuseRest() const;

  [[noreturn]] void Refuse(std::string_view name, std::string_view expected,
                           const JsonValue& found) const;

 private:
  const JsonValue& object_;
  std::string prefix_;
  std::vector<bool> taken_;
};

// A list of token ids. Throws Error that begins with `name`.
std::vector<TokenId> ReadTokenIds(const JsonValue& list, std::string_view name);

// A value as an error sentence shows it: shortened JSON.
std::string Shown(const JsonValue& value);

}  // namespace deepinfer
