// Random texts of grammars, for tests that judge them from outside.
//
// usage: grammar_samples TOKENIZER_JSON < LINES
// A line: {"schema": ...} or {"regex": "..."} or {"tools": [...]} or both tools and schema, and "n"
// texts and "seed".
// Prints {"texts": [...]} or {"error": "..."} a line. Each text is a walk over random allowed
// tokens that is brought to an end by the shortest way after a while.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "base/check.h"
#include "base/error.h"
#include "grammar/json_schema.h"
#include "grammar/test_texts.h"
#include "grammar/token_masks.h"

namespace deepinfer {
namespace {

using Json = nlohmann::ordered_json;

constexpr TokenId kStop = 1;

std::shared_ptr<const Grammar> GrammarOf(const Json& line) {
  if (line.contains("schema") && line.contains("tools"))
    return CallsOrJsonGrammar(line["tools"].dump(), true, line["schema"].dump());
  if (line.contains("schema")) return JsonSchemaGrammar(line["schema"].dump());
  if (line.contains("regex")) return RegexGrammar(line["regex"].get<std::string>());
  return ToolCallGrammar(line["tools"].dump(), "", true);
}

std::string Text(const std::shared_ptr<const Grammar>& grammar, TokenMasks* masks,
                 const TokenTrie& trie, int64_t n_tokens, Endings* endings,
                 std::mt19937_64* random) {
  GrammarState state = masks->Start();
  std::string text;
  for (int64_t i = 0; i < n_tokens; ++i) {
    const TokenMask& mask = masks->Mask(state);
    std::vector<TokenId> allowed;
    for (TokenId t = 0; t < trie.vocab_size(); ++t) {
      if (mask.Allows(t)) allowed.push_back(t);
    }
    DI_CHECK(!allowed.empty()) << text;
    // The single characters more often than their share, since structure is made of them.
    TokenId token = allowed[(*random)() % allowed.size()];
    for (int tries = 0; tries < 20 && trie.BytesOf(token).size() > 1 && (*random)() % 3 != 0;
         ++tries)
      token = allowed[(*random)() % allowed.size()];
    if (token == kStop) return text;
    DI_CHECK(masks->Advance(token, &state)) << text << trie.BytesOf(token);
    text += trie.BytesOf(token);
  }
  Automaton automaton(grammar);
  Automaton::State at = automaton.start();
  for (const char c : text) at = automaton.Step(at, static_cast<uint8_t>(c));
  const std::optional<std::string> end = endings->Find(&automaton, at);
  DI_CHECK(end.has_value()) << text;
  return text + *end;
}

Json Answer(const Json& line, const std::shared_ptr<const TokenTrie>& trie) {
  const std::shared_ptr<const Grammar> grammar = GrammarOf(line);
  TokenMasks masks(grammar, trie, {kStop}, trie->vocab_size());
  Endings endings(grammar);
  std::mt19937_64 random(line.value("seed", 0));
  Json texts = Json::array();
  for (int i = 0; i < line.value("n", 1); ++i)
    texts.push_back(
        Text(grammar, &masks, *trie, static_cast<int64_t>(random() % 60), &endings, &random));
  return {{"texts", std::move(texts)}};
}

}  // namespace
}  // namespace deepinfer

int main(int argc, char** argv) {
  using namespace deepinfer;
  if (argc != 2) {
    std::fputs("usage: grammar_samples TOKENIZER_JSON < LINES\n", stderr);
    return 2;
  }
  const auto trie =
      std::make_shared<const TokenTrie>(TokenTrie::FromTokenizer(Tokenizer::Load(argv[1])));
  for (std::string line; std::getline(std::cin, line);) {
    Json answer;
    try {
      answer = Answer(Json::parse(line), trie);
    } catch (const Error& error) {
      answer = {{"error", error.what()}};
    }
    std::cout << answer.dump() << "\n";
  }
  return 0;
}
