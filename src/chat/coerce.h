// Arguments of a tool call brought to the types that the tool declares (spec 07 section 11).
#pragma once

#include <string_view>

#include "chat/json_value.h"

namespace deepinfer {

// `value` as the first type that it can be read as, of those that the property's schema names:
// null, integer, number, boolean, object or array, string. Objects and arrays are adjusted inside.
JsonValue CoerceValue(JsonValue value, const JsonValue& schema);

// Whether CoerceValue leaves every string as it is.
bool KeepsStrings(const JsonValue& schema);

// {"arguments": {...}} or {"input": {...}}, also with JSON text of the object, becomes that object
// when `properties` declares all of its keys and not the wrapping one.
JsonValue UnwrapArguments(JsonValue arguments, const JsonValue& properties);
// Whether an argument of this name may be such a wrapping.
bool MayWrap(std::string_view key, const JsonValue& properties);

// Both: what a call's arguments mean to a tool with these declared properties.
JsonValue CoerceArguments(JsonValue arguments, const JsonValue& properties);

}  // namespace deepinfer
