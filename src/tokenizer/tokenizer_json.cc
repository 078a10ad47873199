#include "tokenizer/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "tokenizer/unicode.h"

namespace deepinfer {
namespace {

using nlohmann::json;

// The released splits. The third is written with raw line breaks in some files and with escapes in
// others.
constexpr const char* kSplitNumbers = R"(\p{N}{1,3})";
constexpr const char* kSplitHanKana = "[一-龥぀-ゟ゠-ヿ]+";
constexpr const char* kSplitWordsEscaped =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kSplitWordsRaw = R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^)"
                                       "\r\n"
                                       R"(\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[)"
                                       "\r\n"
                                       R"(]*|\s*[)"
                                       "\r\n"
                                       R"(]+|\s+(?!\S)|\s+)";

// A value for an error message: its JSON, cut to a readable length.
std::string Show(const json& value) {
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

class Parser {
 public:
  explicit Parser(const std::string& name) : name_(name) {}

  TokenizerJson Parse(std::string_view text) {
    json root;
    try {
      root = json::parse(text);
    } catch (const json::parse_error& error) {
      Fail(Code::kCorrupt, fmt::format("not valid JSON near byte {}", error.byte));
    }
    if (!root.is_object()) Fail(Code::kCorrupt, "expected a JSON object");
    root_ = &root;
    KnownKeys(root, "",
              {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
               "post_processor", "decoder", "model"});
    Expect(root, "", "version", {"1.0"});
    Expect(root, "", "truncation", {nullptr});
    Expect(root, "", "padding", {nullptr});
    Normalizer(root);
    out_.pre_tokenizer = PreTokenizer(Field(root, "", "pre_tokenizer"));
    const json* post = Find(root, "post_processor");
    if (post != nullptr && !post->is_null()) ExpectType(*post, "post_processor", "ByteLevel");
    ExpectType(Field(root, "", "decoder"), "decoder", "ByteLevel");
    Model(Field(root, "", "model"));
    return std::move(out_);
  }

 private:
  [[noreturn]] void Fail(Code code, const std::string& what) const {
    throw Error(code, name_ + ": " + what);
  }

  static const json* Find(const json& object, const char* key) {
    const auto it = object.find(key);
    return it == object.end() ? nullptr : &*it;
  }

  const json& Field(const json& object, const std::string& path, const char* key) const {
    const json* value = Find(object, key);
    if (value == nullptr) Fail(Code::kCorrupt, fmt::format("{}{} is missing", path, key));
    return *value;
  }

  void KnownKeys(const json& object, const std::string& path,
                 std::initializer_list<std::string_view> known) const {
    for (const auto& [key, value] : object.items()) {
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        Fail(Code::kUnsupported, fmt::format("{}{} is not supported", path, Show(key)));
      }
    }
  }

  // object[key], when present, must be one of `allowed`.
  void Expect(const json& object, const std::string& path, const char* key,
              std::initializer_list<json> allowed) const {
    const json* value = Find(object, key);
    if (value == nullptr || std::find(allowed.begin(), allowed.end(), *value) != allowed.end())
      return;
    Fail(Code::kUnsupported, fmt::format("{}{}: expected {}, found {}", path, key,
                                         Show(*allowed.begin()), Show(*value)));
  }

  void ExpectType(const json& value, const std::string& path, const char* type) const {
    if (!value.is_object()) {
      Fail(Code::kUnsupported, fmt::format("{}: expected {}, found {}", path, type, Show(value)));
    }
    if (Field(value, path + ".", "type") != type) {
      Fail(Code::kUnsupported,
           fmt::format("{}: expected {}, found {}", path, type, Show(value["type"])));
    }
  }

  void Normalizer(const json& root) const {
    const json* value = Find(root, "normalizer");
    if (value == nullptr || value->is_null()) return;
    ExpectType(*value, "normalizer", "Sequence");
    if (Field(*value, "normalizer.", "normalizers") != json::array()) {
      Fail(Code::kUnsupported, fmt::format("normalizer: expected none, found {}", Show(*value)));
    }
  }

  TokenizerJson::PreTokenizer PreTokenizer(const json& value) const {
    if (!value.is_object()) {
      Fail(Code::kUnsupported, fmt::format("pre_tokenizer: found {}", Show(value)));
    }
    if (value.value("type", json()) == "ByteLevel") {
      Expect(value, "pre_tokenizer.", "add_prefix_space", {false});
      if (Field(value, "pre_tokenizer.", "add_prefix_space") == false &&
          value.value("use_regex", json(true)) == true) {
        return TokenizerJson::PreTokenizer::kGpt2;
      }
      Fail(Code::kUnsupported, "pre_tokenizer: ByteLevel without splits");
    }
    ExpectType(value, "pre_tokenizer", "Sequence");
    const json& steps = Field(value, "pre_tokenizer.", "pretokenizers");
    if (!steps.is_array() || steps.size() != 4) {
      Fail(Code::kUnsupported,
           "pre_tokenizer: expected the sequence Split, Split, Split, ByteLevel");
    }
    Split(steps[0], 0, {kSplitNumbers});
    Split(steps[1], 1, {kSplitHanKana});
    Split(steps[2], 2, {kSplitWordsEscaped, kSplitWordsRaw});
    ExpectType(steps[3], "pre_tokenizer step 3", "ByteLevel");
    Expect(steps[3], "pre_tokenizer step 3: ", "add_prefix_space", {false});
    if (steps[3].value("add_prefix_space", json(true)) != false ||
        steps[3].value("use_regex", json(true)) != false) {
      Fail(Code::kUnsupported,
           "pre_tokenizer step 3: ByteLevel with a prefix space or its own regex");
    }
    return TokenizerJson::PreTokenizer::kReleased;
  }

  void Split(const json& step, int index, std::initializer_list<const char*> regexes) const {
    for (const char* regex : regexes) {
      const json expected = {{"type", "Split"},
                             {"pattern", {{"Regex", regex}}},
                             {"behavior", "Isolated"},
                             {"invert", false}};
      if (step == expected) return;
    }
    Fail(Code::kUnsupported,
         fmt::format("pre_tokenizer step {}: not the released model's split, found {}", index,
                     Show(step)));
  }

  void Model(const json& model) {
    ExpectType(model, "model", "BPE");
    KnownKeys(model, "model.",
              {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
               "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
    Expect(model, "model.", "dropout", {nullptr});
    Expect(model, "model.", "unk_token", {nullptr});
    Expect(model, "model.", "continuing_subword_prefix", {nullptr, ""});
    Expect(model, "model.", "end_of_word_suffix", {nullptr, ""});
    for (const char* flag : {"fuse_unk", "byte_fallback", "ignore_merges"}) {
      Expect(model, "model.", flag, {false});
    }
    Vocab(Field(model, "model.", "vocab"));
    Bytes();
    Merges(Field(model, "model.", "merges"));
  }

  // Ids of the base vocabulary and of the added tokens must together be 0 .. n-1, each with one
  // spelling.
  void Vocab(const json& vocab) {
    if (!vocab.is_object()) Fail(Code::kCorrupt, "model.vocab: expected an object");
    const json& added = Field(*root_, "", "added_tokens");
    if (!added.is_array()) Fail(Code::kCorrupt, "added_tokens: expected an array");
    std::vector<std::optional<std::string>> spellings(vocab.size() + added.size());
    for (const auto& [spelling, value] : vocab.items()) {
      const TokenId id = Id(value, spellings.size(), "model.vocab: " + Show(spelling));
      if (spellings[id]) Fail(Code::kCorrupt, fmt::format("model.vocab: id {} is used twice", id));
      spellings[id] = spelling;
      ids_.emplace(spelling, id);
    }
    for (size_t i = 0; i < added.size(); ++i) {
      AddedToken token = Added(added[i], fmt::format("added_tokens[{}]", i), spellings.size());
      std::optional<std::string>& spelling = spellings[token.id];
      const auto known = ids_.find(token.content);
      if ((spelling && *spelling != token.content) ||
          (known != ids_.end() && known->second != token.id)) {
        Fail(Code::kCorrupt,
             fmt::format("added_tokens[{}]: id {} or content {} belongs to another token", i,
                         token.id, Show(token.content)));
      }
      if (!added_contents_.insert(token.content).second) {
        Fail(Code::kCorrupt,
             fmt::format("added_tokens[{}]: {} appears twice", i, Show(token.content)));
      }
      spelling = token.content;
      out_.added_tokens.push_back(std::move(token));
    }
    while (!spellings.empty() && !spellings.back())
      spellings.pop_back();  // tokens listed in both places
    for (size_t id = 0; id < spellings.size(); ++id) {
      if (!spellings[id]) Fail(Code::kCorrupt, fmt::format("id {} has no token", id));
      out_.spellings.push_back(std::move(*spellings[id]));
    }
  }

  TokenId Id(const json& value, size_t limit, const std::string& what) const {
    if (!value.is_number_unsigned() || value.get<uint64_t>() >= limit) {
      Fail(Code::kCorrupt,
           fmt::format("{}: expected an id below {}, found {}", what, limit, Show(value)));
    }
    return static_cast<TokenId>(value.get<uint64_t>());
  }

  AddedToken Added(const json& value, const std::string& path, size_t id_limit) const {
    if (!value.is_object()) Fail(Code::kCorrupt, path + ": expected an object");
    KnownKeys(value, path + ".",
              {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    for (const char* flag : {"single_word", "lstrip", "rstrip"})
      Expect(value, path + ".", flag, {false});
    AddedToken token;
    token.id = Id(Field(value, path + ".", "id"), id_limit, path + ".id");
    const json& content = Field(value, path + ".", "content");
    if (!content.is_string() || content.get_ref<const std::string&>().empty()) {
      Fail(Code::kCorrupt, path + ".content: expected a string that is not empty");
    }
    token.content = content;
    token.normalized = Flag(value, path, "normalized");
    token.special = Flag(value, path, "special");
    return token;
  }

  bool Flag(const json& object, const std::string& path, const char* key) const {
    const json& value = Field(object, path + ".", key);
    if (!value.is_boolean())
      Fail(Code::kCorrupt, fmt::format("{}.{}: expected true or false", path, key));
    return value;
  }

  void Bytes() {
    for (int byte = 0; byte < 256; ++byte) {
      std::string spelling;
      AppendUtf8(CharacterOfByte(static_cast<uint8_t>(byte)), &spelling);
      const auto found = ids_.find(spelling);
      if (found == ids_.end())
        Fail(Code::kCorrupt, fmt::format("model.vocab: byte {} has no token", byte));
      out_.byte_ids[byte] = found->second;
    }
  }

  // A merge is "A B" or ["A", "B"]; A, B and AB must be in the vocabulary.
  void Merges(const json& merges) {
    if (!merges.is_array()) Fail(Code::kCorrupt, "model.merges: expected an array");
    std::unordered_set<uint64_t> seen;
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      const std::string path = fmt::format("model.merges[{}]", rank);
      const auto [left, right] = MergeSides(merges[rank], path);
      const Merge merge{VocabId(left, path), VocabId(right, path), VocabId(left + right, path)};
      const uint64_t key =
          static_cast<uint64_t>(merge.left) << 32 | static_cast<uint32_t>(merge.right);
      if (!seen.insert(key).second) Fail(Code::kCorrupt, path + ": the pair appears twice");
      out_.merges.push_back(merge);
    }
  }

  std::pair<std::string, std::string> MergeSides(const json& merge, const std::string& path) const {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      return {merge[0], merge[1]};
    }
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
        return {text.substr(0, space), text.substr(space + 1)};
      }
    }
    Fail(Code::kCorrupt, fmt::format("{}: expected two tokens, found {}", path, Show(merge)));
  }

  TokenId VocabId(const std::string& spelling, const std::string& path) const {
    const auto found = ids_.find(spelling);
    if (found == ids_.end()) {
      Fail(Code::kCorrupt, fmt::format("{}: {} is not in model.vocab", path, Show(spelling)));
    }
    return found->second;
  }

  const std::string& name_;
  const json* root_ = nullptr;
  TokenizerJson out_;
  std::unordered_map<std::string, TokenId> ids_;  // model.vocab
  std::unordered_set<std::string> added_contents_;
};

}  // namespace

TokenizerJson ParseTokenizerJson(std::string_view text, const std::string& name) {
  return Parser(name).Parse(text);
}

uint32_t CharacterOfByte(uint8_t byte) {
  if ((byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174) return byte;
  // The gaps in order: 0-32, 127-160, 173.
  if (byte <= 32) return 0x100u + byte;
  if (byte <= 160) return 0x100u + 33 + (byte - 127u);
  return 0x100 + 33 + 34;
}

int ByteOfCharacter(uint32_t code_point) {
  if (code_point < 0x100) {
    const auto byte = static_cast<uint8_t>(code_point);
    return CharacterOfByte(byte) == code_point ? byte : -1;
  }
  if (code_point < 0x100 + 33) return static_cast<int>(code_point - 0x100);
  if (code_point < 0x100 + 67) return static_cast<int>(code_point - 0x100 - 33 + 127);
  return code_point == 0x100 + 67 ? 173 : -1;
}

}  // namespace deepinfer
