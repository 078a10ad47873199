#include "obs/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace deepinfer {
namespace {

StepProfile Step(int64_t start) {
  StepProfile step;
  step.Begin(2, 2, 1, 1);
  step.Describe(0, {"a", 0, 100, 8});
  step.Describe(1, {"b", -1, 7, 0});
  for (int tid = 0; tid < 2; ++tid) {
    step.Record(tid, 0, {start, start + 1000, start + 2000});
    step.Record(tid, 1, {start + 2000, start + 5000, start + 5000});
  }
  return step;
}

TEST(TraceTest, IsJsonWithOneEventPerPhaseThreadAndWait) {
  Trace trace;
  trace.Add(Step(5000));
  const auto json = nlohmann::json::parse(trace.Json());
  const auto& events = json["traceEvents"];
  ASSERT_EQ(events.size(), 8u);
  EXPECT_EQ(events[0]["name"], "a");
  EXPECT_EQ(events[0]["ts"], 0);
  EXPECT_EQ(events[0]["dur"], 1);
  EXPECT_EQ(events[0]["args"]["bytes"], 100);
  EXPECT_EQ(events[1]["name"], "wait");
  EXPECT_EQ(events[2]["ts"], 2);
  EXPECT_EQ(events[4]["tid"], 1);
}

TEST(TraceTest, KeepsTheNewest) {
  Trace trace(3);
  for (int64_t i = 0; i < 4; ++i) trace.Add(Step(10000 * i));
  const auto json = nlohmann::json::parse(trace.Json());
  const auto& events = json["traceEvents"];
  ASSERT_EQ(events.size(), 12u);
  EXPECT_EQ(events[0]["name"], "b");
  EXPECT_EQ(events[0]["ts"], 22);
  EXPECT_EQ(events[4]["ts"], 32);
}

}  // namespace
}  // namespace deepinfer
