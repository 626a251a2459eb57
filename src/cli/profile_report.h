// A profile for people and for scripts.
#pragma once
#include <string>

#include "engine/profile.h"

namespace glint::cli {

// What the numbers are of.
struct ProfileSubject {
  std::string model;  // its name
  int threads = 0;
  int64_t depth = 0;
  std::string context;  // what fills it: "random ids of seed 1"
};

std::string ProfileTables(const engine::ProfileReport& report, const ProfileSubject& subject);
std::string ProfileJson(const engine::ProfileReport& report, const ProfileSubject& subject);

}  // namespace glint::cli
