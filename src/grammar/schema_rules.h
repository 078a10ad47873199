// JSON schemas as rules of a grammar.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "grammar/json_text.h"

namespace deepinfer {

// The JSON of a document of at most 1 MiB. Throws Error that begins with `name`.
nlohmann::ordered_json ParseDocument(std::string_view text, const char* name);

// Reads a schema and the schemas inside it. The JSON must outlive this.
class SchemaRules {
 public:
  using Json = nlohmann::ordered_json;
  using Fragment = GrammarBuilder::Fragment;

  // in_markup: the values stand between tags of tool calls.
  SchemaRules(const Json& root, std::string name, bool in_markup, GrammarBuilder* builder)
      : root_(root),
        name_(std::move(name)),
        in_markup_(in_markup),
        builder_(*builder),
        text_(builder, in_markup) {}

  // A value that the schema accepts. path: where it stands, for messages and references.
  int32_t Rule(const Json& schema, const std::string& path);
  JsonText& text() { return text_; }

  // The schema behind its $ref, if it is one.
  const Json& Resolve(const Json& schema, const std::string& path) const;
  // The value as JSON text.
  std::string Dump(const Json& value) const;
  // Whether the schema is for strings only.
  static bool IsString(const Json& schema);
  // A string that the schema, which IsString, accepts: its characters, each spelled as told.
  // any: a string without limits; null: as for the others, repeated `character`.
  Fragment Characters(const Json& schema, const std::string& path, const Spelling& spelling,
                      Fragment (*any)(GrammarBuilder*), int32_t character);
  // Throws for keywords outside the list that are not mere notes.
  void CheckKeywords(const Json& schema, const std::string& path,
                     std::initializer_list<std::string_view> known) const;
  [[noreturn]] void Fail(Code code, const std::string& path, const std::string& sentence) const;

 private:
  Fragment Schema(const Json& schema, const std::string& path);
  Fragment Union(const Json& schema, const char* keyword, const std::string& path);
  Fragment Members(const Json& schema, const std::string& path);
  Fragment OfType(const std::string& type, const Json& schema, const std::string& path);
  Fragment Object(const Json& schema, const std::string& path);
  Fragment ObjectOf(const Json& properties, const std::set<std::string>& needed, const Json& others,
                    const std::string& path);
  Fragment Array(const Json& schema, const std::string& path);
  Fragment String(const Json& schema, const std::string& path);
  Fragment Integer(const Json& schema, const std::string& path);
  std::vector<std::string> TypesOf(const Json& schema, const std::string& path) const;
  int64_t Count(const Json& schema, const char* keyword, int64_t otherwise,
                const std::string& path) const;
  int64_t Bound(const Json& schema, const char* keyword, const std::string& path) const;

  // What tells alternatives of oneOf apart.
  unsigned Kinds(const Json& schema, int depth) const;
  bool Apart(const Json& a, const Json& b) const;

  const Json& root_;
  std::string name_;
  bool in_markup_;
  GrammarBuilder& builder_;
  JsonText text_;
  std::map<std::string, int32_t> references_;
  int depth_ = 0;
};

}  // namespace deepinfer
