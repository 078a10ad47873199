// Fixed texts of the prompt format, byte for byte what the model was trained on (spec 07 sections
// 5, 6 and 8).
#pragma once

#include <string_view>

namespace deepinfer {

// Added tokens.
inline constexpr std::string_view kBosToken = "<｜begin▁of▁sentence｜>";
inline constexpr std::string_view kEosToken = "<｜end▁of▁sentence｜>";
inline constexpr std::string_view kSystemToken = "<｜System｜>";
inline constexpr std::string_view kUserToken = "<｜User｜>";
inline constexpr std::string_view kAssistantToken = "<｜Assistant｜>";
inline constexpr std::string_view kReminderToken = "<｜latest_reminder｜>";
inline constexpr std::string_view kImageToken = "<｜deepseek_image｜>";
inline constexpr std::string_view kThinkOpen = "<think>";
inline constexpr std::string_view kThinkClose = "</think>";
inline constexpr std::string_view kDsmlToken = "｜DSML｜";

// Texts with added tokens inside. {n} and {schema} mark what is put in.
extern const std::string_view kEffortLine;      // {n}: 1..100
extern const std::string_view kToolsPrefix;     // followed by one schema a line
extern const std::string_view kToolsSuffix;     // follows the schemas
extern const std::string_view kResponseFormat;  // {schema}: JSON

}  // namespace deepinfer
