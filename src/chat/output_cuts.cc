#include "chat/output_cuts.h"

namespace deepinfer {

std::vector<std::string_view> Characters(std::string_view text) {
  std::vector<std::string_view> characters;
  for (size_t i = 0; i < text.size();) {
    size_t end = i + 1;
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    characters.push_back(text.substr(i, end - i));
    i = end;
  }
  return characters;
}

ParsedOutput ParsePieces(const OutputParserOptions& options,
                         std::span<const std::string_view> pieces) {
  OutputParser parser(options);
  ParsedOutput result;
  for (const std::string_view piece : pieces) result.Append(parser.Feed(piece));
  result.Append(parser.Finish());
  return result;
}

ParsedOutput ParseOutput(const OutputParserOptions& options, std::string_view text) {
  return ParsePieces(options, {&text, 1});
}

bool SentAgrees(const ParsedOutput& output) {
  for (const ParsedOutput::Call& call : output.calls) {
    const std::optional<JsonValue> sent = TryParseJson(call.sent);
    if (sent ? DumpJson(*sent) != call.arguments : !TryParseJson(call.sent + "\"}")) return false;
  }
  return true;
}

std::optional<CutDifference> FindCutDifference(const OutputParserOptions& options,
                                               std::string_view text) {
  const ParsedOutput whole = ParseOutput(options, text);
  if (!SentAgrees(whole)) return CutDifference{0, whole};
  const std::vector<std::string_view> characters = Characters(text);
  size_t bytes = 0;
  int64_t cut = 0;
  for (const std::string_view character : characters) {
    bytes += character.size();
    ++cut;
    const std::string_view pieces[] = {text.substr(0, bytes), text.substr(bytes)};
    ParsedOutput result = ParsePieces(options, pieces);
    if (result != whole) return CutDifference{cut, std::move(result)};
  }
  ParsedOutput result = ParsePieces(options, characters);
  if (result != whole) return CutDifference{-1, std::move(result)};
  return std::nullopt;
}

}  // namespace deepinfer
