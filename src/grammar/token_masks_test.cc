// Masks against a slow reference, and what may be done with states.
#include "grammar/token_masks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <random>
#include <regex>
#include <set>

#include "grammar/json_schema.h"
#include "grammar/test_texts.h"

namespace deepinfer {
namespace {

std::shared_ptr<const TokenTrie> MakeTrie(const std::vector<std::string>& words) {
  return std::make_shared<const TokenTrie>(
      std::vector<std::string_view>(words.begin(), words.end()));
}

// All texts over a, b, c of at most this length.
std::vector<std::string> AllTexts(size_t length) {
  std::vector<std::string> texts = {""};
  for (size_t i = 0; i < texts.size() && texts[i].size() < length; ++i) {
    for (const char c : {'a', 'b', 'c'}) texts.push_back(texts[i] + c);
  }
  return texts;
}

struct Pattern {
  std::string text;
  size_t longest = 0;  // no text that matches is longer
};

Pattern RandomPattern(std::mt19937_64& random, int depth) {
  Pattern pattern;
  for (uint64_t n = random() % 3 + 1; n > 0; --n) {
    Pattern atom = {{static_cast<char>('a' + random() % 3)}, 1};
    const uint64_t kind = random() % 5;
    if (kind == 1) atom.text = "[ab]";
    if (kind == 2) atom.text = "[^a]";
    if (kind > 2 && depth > 0) {
      atom = RandomPattern(random, depth - 1);
      atom.text = "(" + atom.text + ")";
    }
    constexpr const char* kQuantifiers[] = {"", "", "?", "{1,2}", "{2}"};
    const uint64_t quantifier = random() % 5;
    pattern.text += atom.text + kQuantifiers[quantifier];
    pattern.longest += atom.longest * (quantifier > 2 ? 2 : 1);
    if (n > 1 && random() % 4 == 0) pattern.text += "|";
  }
  return pattern;
}

// The language of a pattern without loops, found by trying every text with another implementation;
// a token is allowed when some text of the language goes on with it.
TEST(TokenMasksTest, EqualABruteForceSearch) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  std::vector<std::string> words = {"a",   "b",   "c", "ab",  "ba", "cc",
                                    "abc", "bca", "",  "aab", "b",  "caca"};
  const auto trie = MakeTrie(words);
  const std::vector<std::string> texts = AllTexts(9);
  const auto stop = static_cast<TokenId>(words.size());
  int n_checked = 0;
  for (int round = 0; round < 60; ++round) {
    const auto [pattern, longest] = RandomPattern(random, 1);
    if (longest > 9) continue;
    SCOPED_TRACE(pattern);
    const std::regex oracle(pattern);
    std::vector<std::string> language;
    for (const std::string& text : texts) {
      if (std::regex_match(text, oracle)) language.push_back(text);
    }
    TokenMasks masks(RegexGrammar(pattern), trie, {stop}, stop + 1);
    for (int walk = 0; walk < 10; ++walk) {
      GrammarState state = masks.Start();
      std::string prefix;
      for (;;) {
        const TokenMask mask = masks.Mask(state);
        std::vector<TokenId> allowed;
        for (TokenId t = 0; t < stop; ++t) {
          const std::string& word = words[static_cast<size_t>(t)];
          const bool expected =
              !word.empty() && std::ranges::any_of(language, [&](const std::string& text) {
                return text.starts_with(prefix + word);
              });
          ASSERT_EQ(mask.Allows(t), expected) << "\"" << prefix << "\" + \"" << word << "\"";
          GrammarState tried = state;
          ASSERT_EQ(masks.Advance(t, &tried), expected);
          if (expected) allowed.push_back(t);
          ++n_checked;
        }
        const bool ends = std::ranges::find(language, prefix) != language.end();
        ASSERT_EQ(mask.Allows(stop), ends) << prefix;
        ASSERT_EQ(masks.CanEnd(state), ends);
        ASSERT_EQ(masks.Advance(stop, &state), ends);
        if (allowed.empty()) break;
        const TokenId token = allowed[random() % allowed.size()];
        ASSERT_TRUE(masks.Advance(token, &state));
        prefix += words[static_cast<size_t>(token)];
      }
    }
  }
  EXPECT_GT(n_checked, 2000);
}

class DemoMasks : public testing::Test {
 protected:
  static constexpr TokenId kStop = 1;
  DemoMasks()
      : tokenizer_(Tokenizer::Load(DI_SOURCE_DIR "/models/demo/tokenizer.json")),
        trie_(std::make_shared<const TokenTrie>(TokenTrie::FromTokenizer(tokenizer_))) {}
  TokenMasks Make(const std::shared_ptr<const Grammar>& grammar) const {
    return TokenMasks(grammar, trie_, {kStop}, tokenizer_.vocab_size());
  }
  static std::vector<TokenId> Allowed(const TokenMask& mask) {
    std::vector<TokenId> tokens;
    for (TokenId t = 0; t < 4096; ++t) {
      if (mask.Allows(t)) tokens.push_back(t);
    }
    return tokens;
  }
  Tokenizer tokenizer_;
  std::shared_ptr<const TokenTrie> trie_;
};

constexpr const char* kPerson = R"({"type": "object", "properties": {"name": {"type": "string"},
  "age": {"type": "integer", "minimum": 0}, "tags": {"type": "array", "items": {"enum": ["a", "b"]}}},
  "required": ["name", "age"], "additionalProperties": false})";

// Every token of a mask can be taken, no other; a copied state takes steps back.
TEST_F(DemoMasks, MasksAreWhatCanBeTaken) {
  std::mt19937_64 random(7);
  for (const auto& grammar : {JsonObjectGrammar(), JsonSchemaGrammar(kPerson)}) {
    TokenMasks masks = Make(grammar);
    GrammarState state = masks.Start();
    for (int step = 0; step < 25; ++step) {
      const TokenMask mask = masks.Mask(state);
      for (TokenId t = 0; t < tokenizer_.vocab_size(); ++t) {
        GrammarState tried = state;
        ASSERT_EQ(masks.Advance(t, &tried), mask.Allows(t)) << tokenizer_.TokenBytes(t);
      }
      std::vector<TokenId> allowed = Allowed(mask);
      std::erase(allowed, kStop);
      ASSERT_TRUE(!allowed.empty() || mask.Allows(kStop));
      if (allowed.empty()) break;
      GrammarState draft = state;  // a rejected draft
      ASSERT_TRUE(masks.Advance(allowed[random() % allowed.size()], &draft));
      masks.Mask(draft);
      EXPECT_EQ(masks.Mask(state), mask);
      ASSERT_TRUE(masks.Advance(allowed[random() % allowed.size()], &state));
    }
  }
}

TEST_F(DemoMasks, AddedTokensAreNoText) {
  TokenMasks masks = Make(JsonSchemaGrammar(R"({"type": "string"})"));
  GrammarState state = masks.Start();
  ASSERT_TRUE(masks.AdvanceText("\"", &state));
  const TokenMask mask = masks.Mask(state);
  EXPECT_GT(mask.Count(), 3000);
  for (const char* token : {"<think>", "</think>", "<｜User｜>", "｜DSML｜"}) {
    const std::optional<TokenId> id = tokenizer_.IdOf(token);
    if (id) {
      EXPECT_FALSE(mask.Allows(*id)) << token;
    }
  }
  EXPECT_FALSE(mask.Allows(kStop));
}

TEST_F(DemoMasks, MasksAreKept) {
  TokenMasks masks = Make(JsonSchemaGrammar(R"({"type": "array", "items": {"type": "string"}})"));
  GrammarState state = masks.Start();
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(masks.AdvanceText(i == 0 ? "[" : ", ", &state));
    for (const char* text : {"\"", "some text", "\""}) {
      masks.Mask(state);
      ASSERT_TRUE(masks.AdvanceText(text, &state));
    }
  }
  EXPECT_LT(masks.n_masks_computed(), 10);
}

// States outlive the automaton's table, which is emptied when it gets too large.
TEST_F(DemoMasks, LongTextsStayWithinTheTable) {
  TokenMasks masks = Make(JsonSchemaGrammar("true"));
  std::mt19937_64 random(3);
  GrammarState state = masks.Start();
  const GrammarState first = state;
  const TokenMask first_mask = masks.Mask(first);
  ASSERT_TRUE(masks.AdvanceText("[", &state));
  int64_t largest = 0;
  for (int i = 0; i < 3000; ++i) {
    // Another nesting every time.
    std::string open, close;
    for (int d = 0; d < 20; ++d) {
      const bool list = random() % 2 == 0;
      open += list ? "[" : "{\"k\": ";
      close.insert(0, list ? "]" : "}");
    }
    ASSERT_TRUE(masks.AdvanceText(open + "\"x", &state));
    ASSERT_TRUE(masks.AdvanceText("\"" + close + ", ", &state));
    largest = std::max(largest, masks.n_states());
  }
  EXPECT_LT(largest, 52'000);
  EXPECT_EQ(masks.Mask(first), first_mask);
  EXPECT_TRUE(masks.AdvanceText("1]", &state));
  EXPECT_TRUE(masks.CanEnd(state));
}

// Times are printed, not judged.
TEST(ReleasedMasks, Times) {
  using Clock = std::chrono::steady_clock;
  const auto us = [](Clock::time_point from) {
    return std::chrono::duration<double, std::micro>(Clock::now() - from).count();
  };
  const Tokenizer tokenizer = Tokenizer::Load(DI_SOURCE_DIR "/build/testdata/tokenizer_v41.json");
  Clock::time_point start = Clock::now();
  const auto trie = std::make_shared<const TokenTrie>(TokenTrie::FromTokenizer(tokenizer));
  std::printf("trie of %lld tokens: %.0f us\n", static_cast<long long>(trie->vocab_size()),
              us(start));
  const std::string text =
      "{\"name\": \"Ada \\\"L\\\" 漢字\", \"age\": 36, \"tags\": [\"a\", \"b\"]}";
  for (const auto& [name, grammar] : {std::pair("object", JsonObjectGrammar()),
                                      std::pair("schema", JsonSchemaGrammar(kPerson))}) {
    TokenMasks masks(grammar, trie, {1}, 129280);
    for (const char* pass : {"first", "again"}) {
      GrammarState state = masks.Start();
      double sum = 0, worst = 0;
      int n = 0;
      for (const TokenId token : tokenizer.EncodePlain(text)) {
        start = Clock::now();
        masks.Mask(state);
        const double took = us(start);
        sum += took;
        worst = std::max(worst, took);
        ++n;
        ASSERT_TRUE(masks.Advance(token, &state)) << tokenizer.TokenBytes(token);
      }
      EXPECT_TRUE(masks.CanEnd(state));
      std::printf("%s, %s: mask %.1f us in the mean, %.1f at most, of %d tokens; %lld states\n",
                  name, pass, sum / n, worst, n, static_cast<long long>(masks.n_states()));
    }
  }
}

}  // namespace
}  // namespace deepinfer
