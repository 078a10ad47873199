#include "server/server_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>

namespace deepinfer {
namespace {

using testing::MatchesRegex;
using testing::StartsWith;

struct Pipe {
  Pipe() { EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0); }
  ~Pipe() {
    close(ends[0]);
    if (ends[1] >= 0) close(ends[1]);
  }
  // All that was written, once nobody can write any more.
  std::string Read() {
    close(ends[1]);
    ends[1] = -1;
    std::string text;
    char chunk[4096];
    for (ssize_t n = 0; (n = read(ends[0], chunk, sizeof chunk)) > 0;)
      text.append(chunk, static_cast<size_t>(n));
    return text;
  }
  int ends[2];
};

TEST(ServerLog, WritesLines) {
  Pipe out;
  {
    ServerLog log(out.ends[1], /*as_json=*/false);
    log.Message("one");
    log.Request(
        {.id = "id", .method = "GET", .path = "/a b\x1b\n", .user = "x\xff", .status = 200});
  }
  EXPECT_THAT(out.Read(),
              MatchesRegex("deepinfer: one\n"
                           "[0-9TZ:-]* id GET /a.b.. 200 0 . 0 tokens - . ms user x.\n"));
}

TEST(ServerLog, WritesJson) {
  Pipe out;
  {
    ServerLog log(out.ends[1], /*as_json=*/true);
    log.Message("a \"message\"");
    log.Request({.id = "id", .method = "GET", .path = "/\xff\n\"", .user = std::string(999, '\n')});
  }
  const std::string text = out.Read();
  const size_t end = text.find('\n');
  EXPECT_EQ(nlohmann::json::parse(text.substr(0, end))["message"], "a \"message\"");
  const auto request = nlohmann::json::parse(text.substr(end + 1));
  EXPECT_EQ(request["request_id"], "id");
  EXPECT_EQ(request["path"], "/\xEF\xBF\xBD\n\"");
}

// A pipe that is full, and that somebody begins to read later.
TEST(ServerLog, NobodyWaitsForAReader) {
  Pipe out;
  std::string text;
  {
    ServerLog log(out.ends[1], /*as_json=*/false);
    for (int i = 0; i < 30000; ++i) log.Message(std::string(100, 'x'));
    fcntl(out.ends[0], F_SETFL, O_NONBLOCK);
    char chunk[4096];
    while (text.find("lost here") == std::string::npos) {
      const ssize_t n = read(out.ends[0], chunk, sizeof chunk);
      if (n > 0) text.append(chunk, static_cast<size_t>(n));
      if (n <= 0) log.Message("more");
    }
  }
  EXPECT_THAT(text, StartsWith("deepinfer: xxx"));
  EXPECT_GT(text.size(), size_t{1} << 20);
}

TEST(ServerLog, EndsBesideAFullPipe) {
  Pipe out;
  ServerLog log(out.ends[1], /*as_json=*/false);
  for (int i = 0; i < 2000; ++i) log.Message(std::string(100, 'x'));
}

TEST(ServerLog, ADescriptorThatTakesNothingLosesLinesOnly) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  for (const bool is_open : {true, false}) {
    if (!is_open) close(full);
    ServerLog log(full, /*as_json=*/false);
    for (int i = 0; i < 100; ++i) log.Message("lost");
  }
}

}  // namespace
}  // namespace deepinfer
