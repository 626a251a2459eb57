// Runs a referee script of tests/text in the Python that has the packages of tests/requirements.txt.
#pragma once
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace glint::text {

inline bool HasReferee() { return std::string_view(GLINT_PYTHON) != ""; }
inline const char* NoReferee() { return "GLINT_PYTHON is not set: no reference packages to compare with"; }

// Any bytes as one line of a text file.
inline std::string Hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    out += kDigits[static_cast<uint8_t>(c) >> 4];
    out += kDigits[static_cast<uint8_t>(c) & 15];
  }
  return out;
}

inline std::string FromHex(std::string_view hex) {
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    out += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return out;
}

// Gives `lines` to the script's standard input and returns the lines of its output; nullopt, and a failed
// test, if it fails.
inline std::optional<std::vector<std::string>> AskReferee(const std::string& script,
                                                          const std::string& arguments,
                                                          const std::vector<std::string>& lines) {
  namespace fs = std::filesystem;
  const fs::path folder =
      fs::temp_directory_path() / ("glint_referee_" + std::to_string(std::random_device{}()));
  fs::create_directory(folder);
  {
    std::ofstream in(folder / "in");
    for (const auto& line : lines) in << line << '\n';
  }
  const std::string command = std::string("'") + GLINT_PYTHON + "' '" GLINT_SOURCE_DIR "/tests/text/" +
                              script + "' " + arguments + " < '" + (folder / "in").string() + "' > '" +
                              (folder / "out").string() + "'";
  const int rc = std::system(command.c_str());
  std::vector<std::string> answer;
  std::ifstream out(folder / "out");
  for (std::string line; std::getline(out, line);) answer.push_back(line);
  fs::remove_all(folder);
  if (rc != 0) {
    ADD_FAILURE() << "the referee failed: " << command;
    return std::nullopt;
  }
  return answer;
}

}  // namespace glint::text
