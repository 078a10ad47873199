// GET /openapi.json: what this server takes and answers, as an OpenAPI 3.1 document.
#pragma once

#include <string>

namespace deepinfer {

// JSON text, made once. tests/python/test_openapi.py holds it against the request parser, both
// ways.
const std::string& OpenApi();

}  // namespace deepinfer
