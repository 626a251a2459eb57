// The program keeps responses: the official client asks for them before and after restarts.
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

namespace glint::cli {
namespace {

namespace fs = std::filesystem;

TEST(ServeResponses, TheOfficialClientGoesOnAcrossRestarts) {
  if (std::string_view(GLINT_PYTHON).empty()) GTEST_SKIP() << "GLINT_PYTHON is not set: no client";
  const fs::path folder = fs::temp_directory_path() / ("glint_serve_responses_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  const std::string log = (folder / "log").string();
  const std::string command = "'" GLINT_PYTHON "' '" GLINT_SOURCE_DIR
                              "/tests/cli/referee_responses.py' '" GLINT_PROGRAM "' '" +
                              folder.string() + "' >'" + log + "' 2>&1";
  const int status = std::system(command.c_str());
  std::ostringstream text;
  text << std::ifstream(log).rdbuf();
  fs::remove_all(folder);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << text.str();
  EXPECT_EQ(status, 0) << text.str();
}

}  // namespace
}  // namespace glint::cli
