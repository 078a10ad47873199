// GET /openapi.json: what this server takes and answers, as an OpenAPI 3.1 document.
#pragma once

#include <string>

namespace deepinfer {

// JSON text. tests/python/test_openapi.py holds it against the request parser, both ways.
std::string OpenApi();

}  // namespace deepinfer
