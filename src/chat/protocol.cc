#include "chat/protocol.h"

namespace deepinfer {

// clang-format off
const std::string_view kEffortLine = R"__(Reasoning Effort: {n} (range 1-100, the higher the value, the more thorough the reasoning)

)__";
// clang-format on

// clang-format off
const std::string_view kToolsPrefix = R"__(## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<｜DSML｜ calls>" block like the following:

<｜DSML｜ calls>
<｜DSML｜ invoke name="$TOOL_NAME">
<｜DSML｜ parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜ parameter>
...
</｜DSML｜ invoke>
<｜DSML｜ invoke name="$TOOL_NAME2">
...
</｜DSML｜ invoke>
</｜DSML｜ calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

)__";
// clang-format on

// clang-format off
const std::string_view kToolsSuffix = R"__(

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
)__";
// clang-format on

// clang-format off
const std::string_view kResponseFormat = R"__(## Response Format:

You MUST strictly adhere to the following schema to reply:
{schema})__";
// clang-format on

}  // namespace deepinfer
