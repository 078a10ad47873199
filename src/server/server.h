// The OpenAI-compatible HTTP server (docs/serving.md).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/executor.h"

namespace deepinfer {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int64_t port = 8000;  // 0: any free one
  // Names that requests may use, the first one in replies. Empty: the name that the model was
  // asked for with.
  std::vector<std::string> served_model_names;
  // Clients must send one of them as a bearer token. Empty: nobody must.
  std::vector<std::string> api_keys;
  // Origins of web pages that may use the server; "*": all. Empty: none but its own page.
  std::vector<std::string> allowed_origins = {"*"};
  bool log_requests = true;         // one line a request on standard error
  std::string log_format = "text";  // or json
  int64_t shutdown_timeout_s = 30;  // for running requests, after the signal to stop

  // Throws Error naming the first option that is out of range.
  void Validate() const;
};

struct ServedModel {
  std::string name;                                 // for the log
  std::function<std::unique_ptr<Executor>()> load;  // called once, on a thread of its own
};

// Listens, loads the model meanwhile (every request but /health is answered by 503 until then) and
// serves until SIGTERM or SIGINT; then running requests may end within the time-out, or until a
// second signal. Throws Error when the address cannot be taken, what `load` throws, and when no
// step is possible any more, after running requests have been told so.
void Serve(const ServerOptions& options, const ServedModel& model);

}  // namespace deepinfer
