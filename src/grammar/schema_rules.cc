#include "grammar/schema_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.h"

namespace deepinfer {
namespace {

using Json = SchemaRules::Json;
using Fragment = GrammarBuilder::Fragment;

constexpr int kMaxDepth = 100;
constexpr int64_t kMaxCount = 100'000;
constexpr int64_t kMaxInteger = 999'999'999'999'999'999;  // 18 digits

// Keywords that say nothing about which values are accepted.
constexpr std::string_view kNotes[] = {"title",    "description", "default",  "examples",
                                       "$comment", "deprecated",  "readOnly", "writeOnly",
                                       "$schema",  "$id",         "$defs",    "definitions"};

const Json* Find(const Json& schema, const char* keyword) {
  if (!schema.is_object()) return nullptr;
  const auto it = schema.find(keyword);
  return it == schema.end() ? nullptr : &*it;
}

bool HasAny(const Json& schema, std::initializer_list<const char*> keywords) {
  return std::ranges::any_of(keywords, [&](const char* k) { return schema.contains(k); });
}

std::string TypeOf(const Json& value) {
  if (value.is_null()) return "null";
  if (value.is_boolean()) return "boolean";
  if (value.is_number_integer()) return "integer";
  if (value.is_number()) return "number";
  if (value.is_string()) return "string";
  return value.is_array() ? "array" : "object";
}

// The values of const or enum.
std::vector<Json> MembersOf(const Json& schema) {
  if (const Json* value = Find(schema, "const")) return {*value};
  const Json* values = Find(schema, "enum");
  if (values == nullptr || !values->is_array()) return {};
  return {values->begin(), values->end()};
}

bool Share(const std::vector<Json>& a, const std::vector<Json>& b) {
  return std::ranges::any_of(a, [&](const Json& v) { return std::ranges::find(b, v) != b.end(); });
}

}  // namespace

Json ParseDocument(std::string_view text, const char* name) {
  constexpr size_t kMaxBytes = size_t{1} << 20;
  if (text.size() > kMaxBytes)
    throw Error(Code::kUnsupported, fmt::format("{}: expected at most {} bytes, found {}", name,
                                                kMaxBytes, text.size()));
  try {
    return Json::parse(text);
  } catch (const Json::exception&) {
    throw Error(Code::kInvalid, fmt::format("{}: not valid JSON", name));
  }
}

void SchemaRules::Fail(Code code, const std::string& path, const std::string& sentence) const {
  throw Error(code, fmt::format("{}{}: {}", name_, path, sentence));
}

std::string SchemaRules::Dump(const Json& value) const {
  std::string text = value.dump();
  constexpr std::string_view kBar = "｜";
  for (size_t at = 0; in_markup_ && (at = text.find(kBar, at)) != std::string::npos;)
    text.replace(at, kBar.size(), "\\uff5c");
  return text;
}

bool SchemaRules::IsString(const Json& schema) {
  return schema.is_object() && schema.contains("type") && schema["type"] == "string";
}

void SchemaRules::CheckKeywords(const Json& schema, const std::string& path,
                                std::initializer_list<std::string_view> known) const {
  for (const auto& [key, value] : schema.items()) {
    if (std::ranges::find(known, key) != known.end()) continue;
    if (std::ranges::find(kNotes, key) != std::end(kNotes)) continue;
    Fail(Code::kUnsupported, path, fmt::format("the keyword \"{}\" is not supported here", key));
  }
}

const Json& SchemaRules::Resolve(const Json& schema, const std::string& path) const {
  const Json* at = &schema;
  for (int n = 0; const Json* reference = Find(*at, "$ref"); ++n) {
    if (n == kMaxDepth) Fail(Code::kInvalid, path, "$ref leads in a circle");
    const std::string text = reference->is_string() ? reference->get<std::string>() : "";
    if (!text.starts_with('#'))
      Fail(Code::kUnsupported, path,
           fmt::format("$ref: expected a place in this schema such as #/$defs/x, found {}",
                       reference->dump()));
    try {
      at = &root_.at(Json::json_pointer(text.substr(1)));
    } catch (const Json::exception&) {
      Fail(Code::kInvalid, path, fmt::format("$ref: {} is not in the schema", text));
    }
  }
  return *at;
}

int32_t SchemaRules::Rule(const Json& schema, const std::string& path) {
  if (schema.is_boolean() && schema.get<bool>()) return text_.Value();
  if (schema.is_object() && schema.empty()) return text_.Value();
  const Json* reference = Find(schema, "$ref");
  if (reference == nullptr) return builder_.Rule(Schema(schema, path));
  CheckKeywords(schema, path, {"$ref"});
  const Json& target = Resolve(schema, path);
  const std::string key = fmt::format("{}", static_cast<const void*>(&target));
  const auto [place, added] = references_.emplace(key, -1);
  if (added) {
    const int32_t rule = builder_.DeclareRule();
    references_[key] = rule;
    builder_.DefineRule(rule, Schema(target, path));
    return rule;
  }
  return place->second;
}

Fragment SchemaRules::Schema(const Json& schema, const std::string& path) {
  if (schema.is_boolean())
    return schema.get<bool>() ? builder_.Call(text_.Value()) : builder_.Choice({});
  if (!schema.is_object()) Fail(Code::kInvalid, path, "expected a schema, found " + schema.dump());
  if (++depth_ > kMaxDepth) Fail(Code::kUnsupported, path, "schemas nested more than 100 deep");
  Fragment f;
  if (schema.contains("const") || schema.contains("enum")) {
    f = Members(schema, path);
  } else if (schema.contains("anyOf")) {
    f = Union(schema, "anyOf", path);
  } else if (schema.contains("oneOf")) {
    f = Union(schema, "oneOf", path);
  } else if (schema.contains("allOf")) {
    f = Union(schema, "allOf", path);
  } else {
    std::vector<Fragment> types;
    for (const std::string& type : TypesOf(schema, path))
      types.push_back(OfType(type, schema, path));
    f = builder_.Choice(types);
  }
  --depth_;
  return f;
}

Fragment SchemaRules::Members(const Json& schema, const std::string& path) {
  CheckKeywords(schema, path, {"const", "enum", "type"});
  if (schema.contains("enum") && !schema["enum"].is_array())
    Fail(Code::kInvalid, path, "enum: expected a list, found " + schema["enum"].dump());
  if (schema.contains("enum") && schema.contains("const"))
    Fail(Code::kUnsupported, path, "the keyword \"enum\" is not supported beside const");
  const std::vector<std::string> types = TypesOf(schema, path);
  std::vector<Fragment> members;
  for (const Json& value : MembersOf(schema)) {
    const std::string type = TypeOf(value);
    const bool fits = !schema.contains("type") || std::ranges::find(types, type) != types.end() ||
                      (type == "integer" && std::ranges::find(types, "number") != types.end());
    if (fits) members.push_back(builder_.Text(Dump(value)));
  }
  return builder_.Choice(members);
}

// anyOf; oneOf, when no value can match two alternatives; allOf of a single schema.
Fragment SchemaRules::Union(const Json& schema, const char* keyword, const std::string& path) {
  CheckKeywords(schema, path, {keyword});
  const Json& list = schema[keyword];
  const std::string here = fmt::format("{}.{}", path, keyword);
  if (!list.is_array() || list.empty())
    Fail(Code::kInvalid, here, "expected a list of schemas, found " + list.dump());
  if (std::string_view(keyword) == "allOf" && list.size() > 1)
    Fail(Code::kUnsupported, path, "the keyword \"allOf\" is not supported with several schemas");
  std::vector<Fragment> alternatives;
  for (size_t i = 0; i < list.size(); ++i) {
    for (size_t j = 0; j < i && std::string_view(keyword) == "oneOf"; ++j) {
      if (!Apart(list[j], list[i]))
        Fail(Code::kUnsupported, here,
             fmt::format("expected alternatives that exclude each other, found that {} and {} may "
                         "both match",
                         j, i));
    }
    alternatives.push_back(builder_.Call(Rule(list[i], fmt::format("{}[{}]", here, i))));
  }
  return builder_.Choice(alternatives);
}

std::vector<std::string> SchemaRules::TypesOf(const Json& schema, const std::string& path) const {
  const std::vector<std::string> all = {"object",  "array", "string", "number",
                                        "boolean", "null",  "integer"};
  if (const Json* type = Find(schema, "type")) {
    std::vector<std::string> types;
    const Json list = type->is_array() ? *type : Json::array({*type});
    for (const Json& name : list) {
      if (!name.is_string() || std::ranges::find(all, name.get<std::string>()) == all.end())
        Fail(Code::kInvalid, path, "type: expected a JSON type, found " + name.dump());
      types.push_back(name.get<std::string>());
    }
    return types;
  }
  // Without a type, one that the other keywords speak about.
  if (HasAny(schema, {"properties", "required", "additionalProperties"})) return {"object"};
  if (HasAny(schema, {"items", "minItems", "maxItems"})) return {"array"};
  if (HasAny(schema, {"pattern", "minLength", "maxLength"})) return {"string"};
  return {"object", "array", "string", "number", "boolean", "null"};
}

Fragment SchemaRules::OfType(const std::string& type, const Json& schema, const std::string& path) {
  CheckKeywords(schema, path,
                {"type", "properties", "required", "additionalProperties", "items", "minItems",
                 "maxItems", "pattern", "minLength", "maxLength", "minimum", "maximum",
                 "exclusiveMinimum", "exclusiveMaximum"});
  if (type == "object") return Object(schema, path);
  if (type == "array") return Array(schema, path);
  if (type == "string") return String(schema, path);
  if (type == "integer") return Integer(schema, path);
  if (type == "null") return builder_.Text("null");
  if (type == "boolean") return builder_.Call(text_.Boolean());
  for (const char* bound : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}) {
    if (schema.contains(bound))
      Fail(Code::kUnsupported, path,
           fmt::format("the keyword \"{}\" is supported for integers only", bound));
  }
  return builder_.Call(text_.Number());
}

Fragment SchemaRules::Object(const Json& schema, const std::string& path) {
  Json properties = schema.value("properties", Json::object());
  const Json required = schema.value("required", Json::array());
  if (!properties.is_object())
    Fail(Code::kInvalid, path, "properties: expected an object, found " + properties.dump());
  // Others are left out unless they are asked for.
  const Json others = schema.value("additionalProperties", Json(properties.empty()));
  std::set<std::string> needed;
  if (!required.is_array()) Fail(Code::kInvalid, path, "required: expected a list of names");
  for (const Json& name : required) {
    if (!name.is_string()) Fail(Code::kInvalid, path, "required: expected a list of names");
    needed.insert(name.get<std::string>());
    if (!properties.contains(name.get<std::string>()))
      properties[name.get<std::string>()] = schema.value("additionalProperties", Json(true));
  }
  return ObjectOf(properties, needed, others, path);
}

// Two chains of states through the properties: nothing has been written yet, or something has, so
// that a comma comes first.
Fragment SchemaRules::ObjectOf(const Json& properties, const std::set<std::string>& needed,
                               const Json& others, const std::string& path) {
  const Fragment open = builder_.Sequence({builder_.Text("{"), builder_.Call(text_.Space())});
  const Fragment close = builder_.Text("}");
  const auto member = [&](Fragment key, int32_t value) {
    return builder_.Sequence(
        {key, builder_.Text(":"), builder_.Call(text_.Space()), builder_.Call(value)});
  };
  const auto after_comma = [&](Fragment f) {
    return builder_.Sequence({builder_.Call(text_.Comma()), f});
  };
  int32_t none = open.end, some = builder_.Node();
  std::vector<std::string> names;
  for (const auto& [key, property] : properties.items()) {
    names.push_back(key);
    const int32_t value = Rule(property, fmt::format("{}.properties.{}", path, key));
    const int32_t next_none = builder_.Node(), next_some = builder_.Node();
    const std::string quoted = Dump(key);
    builder_.Link(none, member(builder_.Text(quoted), value), next_some);
    builder_.Link(some, after_comma(member(builder_.Text(quoted), value)), next_some);
    if (!needed.contains(key)) {
      builder_.Link(none, next_none);
      builder_.Link(some, next_some);
    }
    none = next_none;
    some = next_some;
  }
  if (others != Json(false)) {
    const int32_t value = Rule(others, path + ".additionalProperties");
    const int32_t key = names.empty() ? text_.String() : text_.StringExcept(names);
    builder_.Link(none, member(builder_.Call(key), value), some);
    builder_.Link(some, after_comma(member(builder_.Call(key), value)), some);
  }
  builder_.Link(none, close.start);
  builder_.Link(some, builder_.Call(text_.Space()), close.start);
  return {open.start, close.end};
}

int64_t SchemaRules::Count(const Json& schema, const char* keyword, int64_t otherwise,
                           const std::string& path) const {
  const Json* value = Find(schema, keyword);
  if (value == nullptr) return otherwise;
  if (!value->is_number_integer() || value->get<int64_t>() < 0 ||
      value->get<int64_t>() > kMaxCount) {
    Fail(Code::kUnsupported, path,
         fmt::format("{}: expected an integer from 0 to {}, found {}", keyword, kMaxCount,
                     value->dump()));
  }
  return value->get<int64_t>();
}

Fragment SchemaRules::Array(const Json& schema, const std::string& path) {
  const int64_t min = Count(schema, "minItems", 0, path);
  const int64_t max = Count(schema, "maxItems", -1, path);
  const Json* items = Find(schema, "items");
  if (max >= 0 && min > max) return builder_.Choice({});
  std::vector<Fragment> lists;
  if (min == 0) lists.push_back(builder_.Empty());
  if (max != 0) {
    const int32_t item = items == nullptr ? text_.Value() : Rule(*items, path + ".items");
    lists.push_back(
        builder_.Sequence({builder_.Repeat(item, std::max<int64_t>(min, 1), max, text_.Comma()),
                           builder_.Call(text_.Space())}));
  }
  return builder_.Sequence({builder_.Text("["), builder_.Call(text_.Space()),
                            builder_.Choice(lists), builder_.Text("]")});
}

Fragment SchemaRules::Characters(const Json& schema, const std::string& path,
                                 const Spelling& spelling, Fragment (*any)(GrammarBuilder*),
                                 int32_t character) {
  const int64_t min = Count(schema, "minLength", 0, path);
  const int64_t max = Count(schema, "maxLength", -1, path);
  const Json* pattern = Find(schema, "pattern");
  if (pattern != nullptr) {
    if (!pattern->is_string()) Fail(Code::kInvalid, path, "pattern: expected a string");
    if (min > 0 || max >= 0)
      Fail(Code::kUnsupported, path, "the keyword \"pattern\" is not supported beside a length");
    return RegexFragment(pattern->get<std::string>(), /*whole=*/false, spelling,
                         name_ + path + ".pattern", &builder_);
  }
  if (any != nullptr && min == 0 && max < 0) return any(&builder_);
  if (max >= 0 && min > max) return builder_.Choice({});
  return builder_.Repeat(character, min, max);
}

Fragment SchemaRules::String(const Json& schema, const std::string& path) {
  const Spelling spelling = [this](GrammarBuilder* builder, const CodePoints& set) {
    return JsonSpelling(builder, set, in_markup_);
  };
  if (!HasAny(schema, {"pattern", "minLength", "maxLength"})) return builder_.Call(text_.String());
  const Fragment quote = builder_.Text("\""), end = builder_.Text("\"");
  return builder_.Sequence(
      {quote, Characters(schema, path, spelling, nullptr, text_.Character()), end});
}

int64_t SchemaRules::Bound(const Json& schema, const char* keyword, const std::string& path) const {
  const Json& value = schema[keyword];
  if (!value.is_number_integer() || value > Json(kMaxInteger) || value < Json(-kMaxInteger))
    Fail(Code::kUnsupported, path,
         fmt::format("{}: expected an integer of at most 18 digits, found {}", keyword,
                     value.dump()));
  return value.get<int64_t>();
}

Fragment SchemaRules::Integer(const Json& schema, const std::string& path) {
  if (!HasAny(schema, {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}))
    return builder_.Call(text_.Integer());
  int64_t low = -kMaxInteger, high = kMaxInteger;
  if (schema.contains("minimum")) low = Bound(schema, "minimum", path);
  if (schema.contains("exclusiveMinimum"))
    low = std::max(low, Bound(schema, "exclusiveMinimum", path) + 1);
  if (schema.contains("maximum")) high = Bound(schema, "maximum", path);
  if (schema.contains("exclusiveMaximum"))
    high = std::min(high, Bound(schema, "exclusiveMaximum", path) - 1);
  return low > high ? builder_.Choice({}) : text_.IntegerBetween(low, high);
}

unsigned SchemaRules::Kinds(const Json& schema, int depth) const {
  const auto of_type = [](const std::string& type) {
    const std::string_view kinds[] = {"object", "array", "string", "number", "boolean", "null"};
    const std::string_view name = type == "integer" ? "number" : std::string_view(type);
    return 1u << (std::ranges::find(kinds, name) - std::begin(kinds));
  };
  constexpr unsigned kAll = 63;
  if (!schema.is_object() || depth > kMaxDepth) return kAll;
  if (schema.contains("$ref")) return Kinds(Resolve(schema, ""), depth + 1);
  unsigned kinds = 0;
  if (HasAny(schema, {"const", "enum"})) {
    for (const Json& value : MembersOf(schema)) kinds |= of_type(TypeOf(value));
    return kinds;
  }
  for (const char* keyword : {"anyOf", "oneOf", "allOf"}) {
    const Json* list = Find(schema, keyword);
    if (list == nullptr || !list->is_array()) continue;
    for (const Json& alternative : *list) kinds |= Kinds(alternative, depth + 1);
    return kinds;
  }
  if (!schema.contains("type")) return kAll;  // keywords of one type let the others through
  for (const std::string& type : TypesOf(schema, "")) kinds |= of_type(type);
  return kinds;
}

// Whether no value matches both: other types, other members, or objects that a required property
// tells apart.
bool SchemaRules::Apart(const Json& a_schema, const Json& b_schema) const {
  const Json& a = Resolve(a_schema, "");
  const Json& b = Resolve(b_schema, "");
  if ((Kinds(a, 0) & Kinds(b, 0)) == 0) return true;
  if (HasAny(a, {"const", "enum"}) && HasAny(b, {"const", "enum"}))
    return !Share(MembersOf(a), MembersOf(b));
  const bool objects = a.value("type", Json()) == "object" && b.value("type", Json()) == "object";
  if (!objects) return false;
  const Json properties = a.value("properties", Json::object());
  const Json others = b.value("properties", Json::object());
  for (const auto& [key, property] : properties.items()) {
    const Json a_required = a.value("required", Json::array());
    const Json b_required = b.value("required", Json::array());
    if (std::ranges::find(a_required, Json(key)) == a_required.end() ||
        std::ranges::find(b_required, Json(key)) == b_required.end() || !others.contains(key))
      continue;
    const std::vector<Json> mine = MembersOf(property), theirs = MembersOf(others[key]);
    if (!mine.empty() && !theirs.empty() && !Share(mine, theirs)) return true;
  }
  return false;
}

}  // namespace deepinfer
