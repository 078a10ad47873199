// What draft tokens brought, for people and programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "engine/engine.h"

namespace deepinfer {

nlohmann::ordered_json SpeculativeJson(const Engine::Stats& stats);

// One line, or "" when nothing was verified.
std::string SpeculativeLine(const Engine::Stats& stats);

}  // namespace deepinfer
