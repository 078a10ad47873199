// The markup of tool calls as a grammar.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "grammar/json_schema.h"
#include "grammar/schema_rules.h"

namespace deepinfer {
namespace {

using Fragment = GrammarBuilder::Fragment;
using Json = SchemaRules::Json;

[[noreturn]] void Fail(const std::string& what) { throw Error(Code::kInvalid, "tools: " + what); }

// Text between two tags: anything that does not contain the token of the tags.
Fragment RawText(GrammarBuilder* builder) {
  constexpr uint32_t kToken[] = {kMarkupBar, 'D', 'S', 'M', 'L', kMarkupBar};
  const Fragment text{builder->Node(), builder->Node()};
  // State n: the text ends in the first n characters of the token.
  std::vector<int32_t> states = {text.start};
  while (states.size() < std::size(kToken)) states.push_back(builder->Node());
  for (size_t n = 0; n < states.size(); ++n) {
    const uint32_t next = kToken[n];
    CodePoints others = CodePoints::All().Without({{next, next}});
    if (n + 1 < states.size())
      builder->Link(states[n], builder->Characters({{next, next}}), states[n + 1]);
    if (n > 0 && next != kMarkupBar) {
      builder->Link(states[n], builder->Characters({{kMarkupBar, kMarkupBar}}), states[1]);
      others = others.Without({{kMarkupBar, kMarkupBar}});
    }
    builder->Link(states[n], builder->Characters(others), states[0]);
    builder->Link(states[n], text.end);
  }
  return text;
}

Fragment RawSpelling(GrammarBuilder* builder, const CodePoints& set) {
  return builder->Characters(set.Without({{kMarkupBar, kMarkupBar}}));
}

void CheckName(const std::string& name, const char* what) {
  if (name.empty() || name.find_first_of("\"<>") != std::string::npos ||
      name.find("｜") != std::string::npos) {
    throw Error(Code::kUnsupported,
                fmt::format("tools: expected a {} that tags can hold, found \"{}\"", what, name));
  }
}

class ToolRules {
 public:
  explicit ToolRules(GrammarBuilder* builder)
      : builder_(*builder),
        raw_character_(builder->Rule(RawSpelling(builder, CodePoints::All()))) {}

  // <｜DSML｜ invoke name="NAME">, a line for each parameter, </｜DSML｜ invoke>
  Fragment Invoke(const Json& tool) {
    const Json function = tool.is_object() ? tool.value("function", Json()) : Json();
    if (!function.is_object() || !function.contains("name") || !function["name"].is_string())
      Fail("expected function.name, a string, in " + tool.dump());
    const std::string name = function["name"];
    CheckName(name, "name");
    roots_.push_back(std::make_unique<Json>(function.value("parameters", Json::object())));
    const Json& parameters = *roots_.back();
    if (!parameters.is_object()) Fail(name + ".parameters: expected an object");
    SchemaRules rules(parameters, fmt::format("tools.{}.parameters", name), /*in_markup=*/true,
                      &builder_);
    const Json& schema = rules.Resolve(parameters, "");
    rules.CheckKeywords(schema, "", {"type", "properties", "required", "additionalProperties"});
    if (schema.value("type", Json("object")) != "object")
      Fail(name + ".parameters: expected type object");
    return builder_.Sequence({builder_.Text("<｜DSML｜ invoke name=\"" + name + "\">\n"),
                              Parameters(schema, &rules), builder_.Text("\n</｜DSML｜ invoke>\n")});
  }

 private:
  Fragment Parameters(const Json& schema, SchemaRules* rules) {
    const Json properties = schema.value("properties", Json::object());
    std::set<std::string> needed;
    for (const Json& key : schema.value("required", Json::array())) {
      if (!key.is_string() || !properties.contains(key.get<std::string>()))
        Fail("expected required to name declared properties, found " + key.dump());
      needed.insert(key.get<std::string>());
    }
    const int32_t start = builder_.Node(), end = builder_.Node();
    int32_t none = start, some = builder_.Node();
    for (const auto& [key, property] : properties.items()) {
      CheckName(key, "parameter");
      const int32_t rule = builder_.Rule(Parameter(key, property, rules));
      const int32_t next_none = builder_.Node(), next_some = builder_.Node();
      builder_.Link(none, builder_.Call(rule), next_some);
      builder_.Link(some, builder_.Sequence({builder_.Text("\n"), builder_.Call(rule)}), next_some);
      if (!needed.contains(key)) {
        builder_.Link(none, next_none);
        builder_.Link(some, next_some);
      }
      none = next_none;
      some = next_some;
    }
    builder_.Link(none, end);
    builder_.Link(some, end);
    return {start, end};
  }

  // Strings stand there as they are, other values as JSON.
  Fragment Parameter(const std::string& key, const Json& property, SchemaRules* rules) {
    const std::string path = ".properties." + key;
    const Json& schema = rules->Resolve(property, path);
    const bool raw = SchemaRules::IsString(schema);
    const Fragment value =
        raw ? RawString(schema, path, rules) : builder_.Call(rules->Rule(property, path));
    return builder_.Sequence(
        {builder_.Text(fmt::format("<｜DSML｜ parameter name=\"{}\" string=\"{}\">", key, raw)),
         value, builder_.Text("</｜DSML｜ parameter>")});
  }

  Fragment RawString(const Json& schema, const std::string& path, SchemaRules* rules) {
    if (schema.contains("enum") || schema.contains("const")) {
      rules->CheckKeywords(schema, path, {"type", "enum", "const"});
      const Json members =
          schema.contains("const") ? Json::array({schema["const"]}) : schema["enum"];
      std::vector<Fragment> texts;
      for (const Json& member : members) {
        if (!member.is_string()) continue;
        const std::string text = member.get<std::string>();
        if (text.find("｜") != std::string::npos)
          rules->Fail(Code::kUnsupported, path, "a member contains the bar of tags: " + text);
        texts.push_back(builder_.Text(text));
      }
      return builder_.Choice(texts);
    }
    rules->CheckKeywords(schema, path, {"type", "pattern", "minLength", "maxLength"});
    return rules->Characters(schema, path, RawSpelling, RawText, raw_character_);
  }

  GrammarBuilder& builder_;
  int32_t raw_character_;
  std::vector<std::unique_ptr<Json>> roots_;
};

// A block of calls of the tools, or of one of them.
Fragment Markup(std::string_view tools, std::string_view only, bool parallel,
                GrammarBuilder* builder) {
  const Json list = ParseDocument(tools, "tools");
  if (!list.is_array()) Fail("expected a list");
  ToolRules rules(builder);
  std::vector<Fragment> invokes;
  for (const Json& tool : list) {
    const Json function = tool.is_object() ? tool.value("function", Json()) : Json();
    const bool wanted = only.empty() || (function.is_object() && function.contains("name") &&
                                         function["name"] == only);
    if (wanted) invokes.push_back(rules.Invoke(tool));
  }
  if (invokes.empty()) Fail(fmt::format("expected a tool \"{}\" among those declared", only));
  const int32_t invoke = builder->Rule(builder->Choice(invokes));
  return builder->Sequence(
      {builder->Optional(builder->Text("\n\n")), builder->Text("<｜DSML｜ calls>\n"),
       builder->Repeat(invoke, 1, parallel ? -1 : 1), builder->Text("</｜DSML｜ calls>")});
}

}  // namespace

std::shared_ptr<const Grammar> ToolCallGrammar(std::string_view tools, std::string_view only,
                                               bool parallel) {
  GrammarBuilder builder;
  return builder.Finish(builder.Rule(Markup(tools, only, parallel, &builder)),
                        /*has_markup=*/true);
}

std::shared_ptr<const Grammar> CallsOrJsonGrammar(std::string_view tools, bool parallel,
                                                  std::string_view schema) {
  GrammarBuilder builder;
  const Json json = schema.empty() ? Json() : ParseDocument(schema, "json_schema");
  SchemaRules rules(json, "json_schema", /*in_markup=*/true, &builder);
  const int32_t value = schema.empty() ? rules.text().Object() : rules.Rule(json, "");
  const Fragment text = builder.Sequence({builder.Call(rules.text().Space()), builder.Call(value)});
  return builder.Finish(builder.Rule(builder.Choice({Markup(tools, "", parallel, &builder), text})),
                        /*has_markup=*/true);
}

}  // namespace deepinfer
